//===- PipeDialect.h - The pipe dialect and its attributes ------*- C++ -*-===//
//
// The dialect, the attributes of a spec, and the interface of a schedule
// family.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEDIALECT_H
#define PENSTOCK_DIALECT_PIPE_IR_PIPEDIALECT_H

#include "penstock/Dialect/Pipe/IR/PipeProperties.h"
#include "penstock/Schedule/Schedule.h"

#include "mlir/IR/Dialect.h"

#include "penstock/Dialect/Pipe/IR/PipeDialect.h.inc"

#include "penstock/Dialect/Pipe/IR/PipeAttrInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "penstock/Dialect/Pipe/IR/PipeAttrs.h.inc"

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEDIALECT_H
