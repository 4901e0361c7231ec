//===- PipeProperties.cpp - Storage of properties -------------------------===//

#include "penstock/Dialect/Pipe/IR/PipeProperties.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

namespace penstock::pipe {

using llvm::failure;
using llvm::success;

Attribute toAttribute(MLIRContext *context, int64_t value) {
  return IntegerAttr::get(IntegerType::get(context, 64), value);
}

FailureOr<int64_t> integerFromAttribute(Attribute attr, int64_t low,
                                        int64_t high, EmitError emitError) {
  auto integer = dyn_cast_or_null<IntegerAttr>(attr);
  if (!integer || !integer.getValue().isSignedIntN(64))
    return emitError() << "expected an integer, got " << attr, failure();
  int64_t value = integer.getValue().getSExtValue();
  if (value < low || value > high)
    return emitError() << "expected an integer from " << low << " to " << high
                       << ", got " << value,
           failure();
  return value;
}

//===----------------------------------------------------------------------===//
// Waits
//===----------------------------------------------------------------------===//

/// As an attribute, a wait is five numbers in a row.
static constexpr size_t kWaitFields = 5;

static bool isKnown(int64_t op, int64_t payload) {
  return op >= 0 && op < kNumOps && payload >= 0 && payload < kNumPayloads;
}

Attribute toAttribute(MLIRContext *context, const Waits &waits) {
  SmallVector<int32_t> fields;
  for (const InstructionRef &ref : waits)
    fields.append({int32_t(ref.op), int32_t(ref.payload), ref.stage,
                   ref.microbatch, ref.peer});
  return DenseI32ArrayAttr::get(context, fields);
}

LogicalResult fromAttribute(Waits &waits, Attribute attr, EmitError emitError) {
  auto array = dyn_cast_or_null<DenseI32ArrayAttr>(attr);
  if (!array || array.size() % kWaitFields != 0)
    return emitError() << "expected waits as an array<i32> of five numbers each"
                          " (op, payload, stage, micro-batch, peer)",
           failure();
  waits.clear();
  for (ArrayRef<int32_t> rest = array; !rest.empty();
       rest = rest.drop_front(kWaitFields)) {
    if (!isKnown(rest[0], rest[1]))
      return emitError() << "expected a known op and payload in waits, got "
                         << rest[0] << " and " << rest[1],
             failure();
    InstructionRef &ref = waits.emplace_back();
    ref.op = static_cast<Op>(rest[0]);
    ref.payload = static_cast<Payload>(rest[1]);
    ref.stage = rest[2];
    ref.microbatch = rest[3];
    ref.peer = rest[4];
  }
  return success();
}

llvm::hash_code hashWaits(const Waits &waits) {
  llvm::hash_code hash(waits.size());
  for (const InstructionRef &ref : waits)
    hash = llvm::hash_combine(hash, ref.op, ref.payload, ref.stage,
                              ref.microbatch, ref.peer);
  return hash;
}

void writeWaits(DialectBytecodeWriter &writer, const Waits &waits) {
  writer.writeVarInt(waits.size());
  for (const InstructionRef &ref : waits) {
    writer.writeVarInt(uint64_t(ref.op) | uint64_t(ref.payload) << 8);
    // None is -1: counting from there takes one byte.
    for (int32_t field : {ref.stage, ref.microbatch, ref.peer})
      writer.writeVarInt(uint64_t(int64_t(field) + 1));
  }
}

LogicalResult readWaits(DialectBytecodeReader &reader, Waits &waits) {
  uint64_t size;
  if (failed(reader.readVarInt(size)))
    return failure();
  // `size` is not to be trusted: nothing is reserved.
  for (; size > 0; --size) {
    InstructionRef ref;
    uint64_t kind;
    if (failed(reader.readVarInt(kind)))
      return failure();
    if (!isKnown(kind & 0xff, kind >> 8))
      return reader.emitError("unknown instruction in waits"), failure();
    ref.op = static_cast<Op>(kind & 0xff);
    ref.payload = static_cast<Payload>(kind >> 8);
    for (int32_t *field : {&ref.stage, &ref.microbatch, &ref.peer}) {
      uint64_t value;
      if (failed(reader.readVarInt(value)))
        return failure();
      *field = static_cast<int32_t>(value - 1);
    }
    waits.push_back(ref);
  }
  return success();
}

} // namespace penstock::pipe
