#include "penstock/Analysis/Verify.h"
