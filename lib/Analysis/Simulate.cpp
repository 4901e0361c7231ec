#include "penstock/Analysis/Simulate.h"
