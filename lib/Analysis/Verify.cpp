//===- Verify.cpp - The five rules ----------------------------------------===//

#include "penstock/Analysis/Verify.h"

using namespace penstock;

std::string_view penstock::name(Semantics semantics) {
  return semantics == Semantics::Closure ? "closure" : "documented";
}
