#include "penstock/Schedule/Schedule.h"
