//===- File.h - The program file (.psp) -------------------------*- C++ -*-===//
//
// A program file is a FlatBuffer (Program.fbs) with a version and the canonical
// hash of all ranks. The loader is strict: what it returns is well-formed, so
// that every later step may index without checks.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_PROGRAM_FILE_H
#define PENSTOCK_PROGRAM_FILE_H

#include "penstock/Program/Result.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// Version of the file format that this library writes, and the newest it reads.
inline constexpr uint32_t kProgramFileVersion = 1;

/// 128-bit hash (XXH3) of the canonical content of a program: problem and all
/// ranks, independent of the file's bytes. Ranks of a job compare it before
/// the first instruction.
struct ProgramHash {
  uint64_t low = 0, high = 0;
  bool operator==(const ProgramHash &) const = default;
  std::string str() const; ///< 32 hexadecimal digits
};
ProgramHash hashProgram(const Program &program);

/// The bytes of a program file. The program must be well-formed.
std::vector<uint8_t> serialize(const Program &program);

/// Reads a program file from memory: FlatBuffers verification, version,
/// wellFormed() and the stored hash. Needs at most about four times the size of
/// the file in memory.
Result<Program> deserialize(std::span<const uint8_t> bytes);

Status writeProgramFile(const Program &program, const std::string &path);
Result<Program> readProgramFile(const std::string &path);

/// The local conditions that every consumer may rely on: counts and indices in
/// range (ops, payloads, stages, micro-batches, peers, rank sets, slots,
/// waits), finite non-negative costs and sizes, items of one kind and queue.
/// Says nothing about whether the program is right: that is the verifier's.
/// Linear; names the first fault.
Status wellFormed(const Program &program);

} // namespace penstock

#endif // PENSTOCK_PROGRAM_FILE_H
