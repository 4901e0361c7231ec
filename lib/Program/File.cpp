#include "penstock/Program/File.h"
