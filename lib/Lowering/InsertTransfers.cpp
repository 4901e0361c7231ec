#include "penstock/Lowering/Lowering.h"
