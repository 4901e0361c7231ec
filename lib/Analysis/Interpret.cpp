#include "penstock/Analysis/Interpret.h"
