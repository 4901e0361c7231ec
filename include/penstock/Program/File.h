//===- File.h - The program file (.psp) -------------------------*- C++ -*-===//
//
// A program file is a FlatBuffer (Program.fbs) with a version, the canonical
// hash of all ranks and, where there is one, a certificate. The loader is
// strict: what it returns is well-formed, so that every later step may index
// without checks, and what certificate it has holds.
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

/// Version of the file format that this library writes, and the only one that
/// it reads.
inline constexpr uint32_t kProgramFileVersion = 3;
/// Largest program file: its offsets are 31 bits wide.
inline constexpr size_t kMaxProgramFileBytes = 2'000'000'000;

/// 128-bit hash (penstock::Hasher) of the canonical content of a program:
/// problem and all ranks, independent of the file's bytes. Ranks of a job
/// compare it before the first instruction.
struct ProgramHash {
  uint64_t low = 0, high = 0;
  bool operator==(const ProgramHash &) const = default;
  std::string str() const; ///< 32 hexadecimal digits
};
ProgramHash hashProgram(const Program &program);

/// An upper bound of the size of the file, and close to it.
size_t estimateFileBytes(const Program &program);

/// The bytes of a program file. The program must be well-formed.
std::vector<uint8_t> serialize(const Program &program);

/// Reads a program file from memory: FlatBuffers verification, version, the
/// stored hashes, wellFormed(), and the certificate where there is one. Needs
/// at most about four times the size of the file in memory, and a little for
/// each rank. A failure names its place in the message.
Result<Program> deserialize(std::span<const uint8_t> bytes);

/// Checks that the program is well-formed, and the certificate where there is
/// one, and writes both. A file that is there is replaced as a whole or not at
/// all.
Status writeProgramFile(const Program &program, const std::string &path);
/// Messages begin with the path.
Result<Program> readProgramFile(const std::string &path);

/// The local conditions that every consumer may rely on: counts and indices in
/// range (ops, payloads, stages, micro-batches, peers, rank sets, slots,
/// waits), no field set that the op does not have, finite non-negative costs
/// and sizes, items of one kind and queue, canonical waits and rank sets, no
/// times or one per instruction, and a file of at most `maxFileBytes`. Says
/// nothing about whether the program is right: that is the verifier's. Linear;
/// names the first fault, with the place in Failure::site and not in the
/// message.
Status wellFormed(const Program &program,
                  size_t maxFileBytes = kMaxProgramFileBytes);

} // namespace penstock

#endif // PENSTOCK_PROGRAM_FILE_H
