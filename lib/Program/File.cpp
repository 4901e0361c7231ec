//===- File.cpp - The program file (.psp) ---------------------------------===//

#include "penstock/Program/File.h"
#include "Program_generated.h"
#include "penstock/Program/Certificate.h"
#include "penstock/Program/Text.h"
#include "penstock/Support/Hash.h"
#include "penstock/Support/Memory.h"
#include "penstock/Support/Temporary.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <type_traits>

namespace fs = std::filesystem;
using namespace penstock;

//===----------------------------------------------------------------------===//
// Layout: vectors of these types are the same bytes in memory, in the file and
// in the hash.
//===----------------------------------------------------------------------===//

static_assert(std::endian::native == std::endian::little,
              "program files are little-endian");
static_assert(std::has_unique_object_representations_v<Instruction>,
              "padding would be hashed");
static_assert(sizeof(Stage) == 2 * 4 + 5 * 8 + 5 * 8,
              "padding would be hashed");
static_assert(std::is_trivially_copyable_v<Instruction> &&
              std::is_trivially_copyable_v<Stage>);
static_assert(sizeof(Instruction) == sizeof(file::Instruction) &&
              alignof(Instruction) == alignof(file::Instruction) &&
              sizeof(Stage) == sizeof(file::Stage) &&
              alignof(Stage) == alignof(file::Stage));
static_assert(
    offsetof(Instruction, op) == 0 && offsetof(Instruction, joined) == 1 &&
    offsetof(Instruction, payload) == 2 && offsetof(Instruction, queue) == 3 &&
    offsetof(Instruction, comm) == 4 && offsetof(Instruction, numWaits) == 6 &&
    offsetof(Instruction, stage) == 8 &&
    offsetof(Instruction, microbatch) == 12 &&
    offsetof(Instruction, peer) == 16 &&
    offsetof(Instruction, firstWait) == 20 &&
    offsetof(Instruction, bytes) == 24 && offsetof(Instruction, slots) == 32);
static_assert(
    offsetof(Stage, firstLayer) == 0 && offsetof(Stage, numLayers) == 4 &&
    offsetof(Stage, cost) == 8 && offsetof(StageCost, forward) == 0 &&
    offsetof(StageCost, backward) == 8 && offsetof(StageCost, input) == 16 &&
    offsetof(StageCost, weight) == 24 && offsetof(StageCost, recompute) == 32 &&
    offsetof(Stage, bytes) == 48 && offsetof(StageBytes, output) == 0 &&
    offsetof(StageBytes, stash) == 8 &&
    offsetof(StageBytes, parameters) == 16 &&
    offsetof(StageBytes, gradients) == 24 &&
    offsetof(StageBytes, optimizer) == 32);

//===----------------------------------------------------------------------===//
// Hash
//===----------------------------------------------------------------------===//

namespace {

/// Feeds values to the hash, vectors after their length.
class ProgramHasher {
public:
  void add(std::integral auto value) {
    hasher.add(static_cast<uint64_t>(value));
  }
  void add(double value) { hasher.add(std::bit_cast<uint64_t>(value)); }
  template <typename Range>
  void addRange(const Range &range) {
    hasher.add(range.size());
    hasher.add(range.data(), range.size() * sizeof(*range.data()));
  }
  ProgramHash finish() const {
    const Hasher::Result hash = hasher.finish();
    return {hash.low, hash.high};
  }

private:
  Hasher hasher;
};

bool usesHostSlots(const Program &program) {
  return std::any_of(
      program.ranks.begin(), program.ranks.end(),
      [](const RankProgram &rank) { return !rank.hostSlotBytes.empty(); });
}

} // namespace

ProgramHash penstock::hashProgram(const Program &program) {
  const Problem &problem = program.problem;
  ProgramHasher hasher;
  hasher.addRange(problem.name);
  hasher.add(problem.numRanks);
  hasher.add(problem.numMicrobatches);
  hasher.addRange(problem.stages);
  hasher.addRange(problem.placement);
  hasher.addRange(problem.chains);
  hasher.add(problem.link.latency);
  hasher.add(problem.link.bytesPerTime);
  hasher.add(problem.memory);
  hasher.add(problem.slices);
  hasher.addRange(problem.weights);
  hasher.add(problem.overlap);
  hasher.add(problem.postValidation);
  hasher.add(problem.tied.size());
  for (const TiedStages &set : problem.tied) {
    hasher.addRange(set.stages);
    hasher.add(set.bytes);
  }
  hasher.add(program.ranks.size());
  for (const RankProgram &rank : program.ranks) {
    hasher.addRange(rank.instructions);
    hasher.addRange(rank.waits);
    hasher.addRange(rank.slotBytes);
  }
  hasher.add(program.rankSets.size());
  for (const std::vector<int32_t> &set : program.rankSets)
    hasher.addRange(set);
  // What came later counts only where it is used: the hashes of all other
  // programs have not changed with it.
  if (problem.hostLink != Link()) {
    hasher.add(problem.hostLink.latency);
    hasher.add(problem.hostLink.bytesPerTime);
  }
  if (usesHostSlots(program))
    for (const RankProgram &rank : program.ranks)
      hasher.addRange(rank.hostSlotBytes);
  return hasher.finish();
}

/// Of the certificate, so that a change is noticed also where the changed times
/// would hold; 0 where there is none.
static ProgramHash hashTimes(const Program &program) {
  if (!hasCertificate(program))
    return {};
  ProgramHasher hasher;
  for (const RankProgram &rank : program.ranks)
    hasher.addRange(rank.times);
  return hasher.finish();
}

std::string ProgramHash::str() const {
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016llx%016llx",
                static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return digits;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

namespace {

class HugePages : public flatbuffers::Allocator {
public:
  uint8_t *allocate(size_t size) override { return bytes.allocate(size); }
  void deallocate(uint8_t *p, size_t size) override {
    bytes.deallocate(p, size);
  }

private:
  HugePageAllocator<uint8_t> bytes;
};

using Builder = flatbuffers::FlatBufferBuilder;

/// A vector of structs as it lies in memory; none when empty.
template <typename FileT, typename T>
flatbuffers::Offset<flatbuffers::Vector<const FileT *>>
writeStructs(Builder &builder, const std::vector<T> &values) {
  static_assert(sizeof(T) == sizeof(FileT));
  if (values.empty())
    return 0;
  return builder.CreateVectorOfStructs(
      reinterpret_cast<const FileT *>(values.data()), values.size());
}

template <typename T>
flatbuffers::Offset<flatbuffers::Vector<T>>
writeScalars(Builder &builder, const std::vector<T> &values) {
  if (values.empty())
    return 0;
  return builder.CreateVector(values);
}

void build(Builder &builder, const Program &program) {
  std::vector<flatbuffers::Offset<file::Rank>> ranks;
  ranks.reserve(program.ranks.size());
  for (const RankProgram &rank : program.ranks) {
    auto times = writeScalars(builder, rank.times);
    auto slotBytes = writeScalars(builder, rank.slotBytes);
    auto hostSlotBytes = writeScalars(builder, rank.hostSlotBytes);
    auto waits = writeScalars(builder, rank.waits);
    auto instructions =
        writeStructs<file::Instruction>(builder, rank.instructions);
    ranks.push_back(file::CreateRank(builder, instructions, waits, slotBytes,
                                     times, hostSlotBytes));
  }
  std::vector<uint32_t> setEnds;
  std::vector<int32_t> setMembers;
  for (const std::vector<int32_t> &set : program.rankSets) {
    setMembers.insert(setMembers.end(), set.begin(), set.end());
    setEnds.push_back(static_cast<uint32_t>(setMembers.size()));
  }

  const Problem &problem = program.problem;
  std::vector<uint32_t> tiedEnds;
  std::vector<int32_t> tiedStages;
  std::vector<int64_t> tiedBytes;
  for (const TiedStages &set : problem.tied) {
    tiedStages.insert(tiedStages.end(), set.stages.begin(), set.stages.end());
    tiedEnds.push_back(static_cast<uint32_t>(tiedStages.size()));
    tiedBytes.push_back(set.bytes);
  }
  const ProgramHash hash = hashProgram(program);
  const file::Hash fileHash(hash.low, hash.high);
  const ProgramHash times = hashTimes(program);
  const file::Hash timesHash(times.low, times.high);
  auto name = builder.CreateString(problem.name);
  auto stages = writeStructs<file::Stage>(builder, problem.stages);
  auto placement = writeScalars(builder, problem.placement);
  auto chains = writeScalars(builder, problem.chains);
  auto weights = writeScalars(builder, problem.weights);
  auto tied = writeScalars(builder, tiedStages);
  auto endsOfTied = writeScalars(builder, tiedEnds);
  auto bytesOfTied = writeScalars(builder, tiedBytes);
  auto rankOffsets = builder.CreateVector(ranks);
  auto ends = writeScalars(builder, setEnds);
  auto members = writeScalars(builder, setMembers);
  file::FinishSizePrefixedProgramBuffer(
      builder,
      file::CreateProgram(builder, kProgramFileVersion, &fileHash, name,
                          problem.numMicrobatches, stages, placement, chains,
                          problem.link.latency, problem.link.bytesPerTime,
                          problem.memory, rankOffsets, ends, members,
                          hasCertificate(program) ? &timesHash : nullptr,
                          problem.slices == 1 ? 0 : problem.slices, weights,
                          problem.overlap, tied, endsOfTied, bytesOfTied,
                          problem.postValidation, problem.hostLink.latency,
                          problem.hostLink.bytesPerTime));
}

/// What every program in a file fulfils. A message begins with the place.
Status checkProgram(const Program &program) {
  Status status = wellFormed(program);
  if (status && hasCertificate(program))
    status = checkCertificate(program);
  if (status)
    return status;
  const Site site = status.failure().site;
  return Failure{describe(program, site) + ": " + status.message(), site};
}

std::string systemError() { return std::strerror(errno); }

/// Writes to a stream that is closed at the end; false: see errno.
bool writeAll(const std::string &path, const char *mode,
              std::span<const uint8_t> bytes) {
  std::FILE *stream = std::fopen(path.c_str(), mode);
  if (!stream)
    return false;
  bool ok = std::fwrite(bytes.data(), 1, bytes.size(), stream) == bytes.size();
  int error = errno;
  if (std::fclose(stream) != 0 && ok) {
    ok = false;
    error = errno;
  }
  errno = error;
  return ok;
}

} // namespace

size_t penstock::estimateFileBytes(const Program &program) {
  const Problem &problem = program.problem;
  size_t bytes =
      512 + problem.name.size() + problem.stages.size() * sizeof(Stage) +
      problem.placement.size() * sizeof(int32_t) + problem.chains.size() +
      problem.weights.size() * sizeof(double);
  for (const TiedStages &set : problem.tied)
    bytes += sizeof(uint32_t) + sizeof(int64_t) +
             set.stages.size() * sizeof(int32_t);
  for (const RankProgram &rank : program.ranks)
    bytes +=
        64 + rank.instructions.size() * sizeof(Instruction) +
        rank.waits.size() * sizeof(uint32_t) +
        (rank.slotBytes.size() + rank.hostSlotBytes.size()) * sizeof(int64_t) +
        rank.times.size() * sizeof(uint32_t);
  for (const std::vector<int32_t> &set : program.rankSets)
    bytes += sizeof(uint32_t) + set.size() * sizeof(int32_t);
  return bytes;
}

std::vector<uint8_t> penstock::serialize(const Program &program) {
  HugePages pages;
  Builder builder(estimateFileBytes(program), &pages);
  build(builder, program);
  const uint8_t *bytes = builder.GetBufferPointer();
  return {bytes, bytes + builder.GetSize()};
}

Status penstock::writeProgramFile(const Program &program,
                                  const std::string &path) {
  if (Status status = checkProgram(program); !status)
    return Failure{path + ": not written: " + status.message(),
                   status.failure().site};
  HugePages pages;
  Builder builder(estimateFileBytes(program), &pages);
  build(builder, program);
  const std::span<const uint8_t> bytes(builder.GetBufferPointer(),
                                       builder.GetSize());
  const Failure failure{path + ": cannot write the program file: "};

  // A pipe or a device is written to, a file is replaced.
  std::error_code error;
  const fs::file_status old = fs::status(path, error);
  if (fs::exists(old) && !fs::is_regular_file(old)) {
    if (!writeAll(path, "wb", bytes))
      return Failure{failure.message + systemError()};
    return success();
  }
  std::string target = path;
  if (fs::is_symlink(fs::symlink_status(path, error)) && fs::exists(old))
    target = fs::canonical(path, error).string();
  const std::string temporary = temporaryBeside(target).string();
  std::remove(temporary.c_str()); // of a process that was killed
  if (!writeAll(temporary, "wbx", bytes) ||
      std::rename(temporary.c_str(), target.c_str()) != 0) {
    const std::string why = systemError();
    std::remove(temporary.c_str());
    return Failure{failure.message + why};
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

using Bytes = std::span<const uint8_t>;

constexpr size_t kPrefixBytes = sizeof(flatbuffers::uoffset_t);
/// Size prefix, root offset and identifier.
constexpr size_t kHeadBytes = 12;

Failure refuse(std::string_view why) {
  return Failure{"the program file " + std::string(why)};
}

/// Size of the whole file according to its first bytes.
size_t declaredBytes(Bytes head) {
  return kPrefixBytes +
         flatbuffers::ReadScalar<flatbuffers::uoffset_t>(head.data());
}

/// Whether the bytes may begin a program file.
Status checkHead(Bytes bytes) {
  if (bytes.empty())
    return refuse("is empty; penstock-translate --pipe-to-program writes one");
  // A spec is soon taken for what comes of it.
  if (bytes.size() >= kHeadBytes &&
      std::ranges::all_of(bytes.first(kHeadBytes), [](uint8_t byte) {
        return (byte >= ' ' && byte < 127) || (byte >= '\t' && byte <= '\r');
      }))
    return refuse("is text and no compiled program; compile a spec with "
                  "penstock-opt SPEC.mlir --pipe-compile | penstock-translate "
                  "--pipe-to-program - -o FILE.psp");
  if (bytes.size() < kHeadBytes ||
      !flatbuffers::BufferHasIdentifier(bytes.data(), file::ProgramIdentifier(),
                                        true))
    return refuse("is not one (it has no \"PSPR\" mark); penstock-translate "
                  "--pipe-to-program writes one");
  if (declaredBytes(bytes) > kMaxProgramFileBytes)
    return refuse("claims to be larger than any can be, " +
                  std::to_string(declaredBytes(bytes)) +
                  " bytes; write it again");
  return success();
}

/// Copies the content of a verified file. Parts of a FlatBuffer may overlap,
/// so that a small file could unfold to a huge program: the reader gives no
/// more bytes than the file has.
class Reader {
public:
  explicit Reader(size_t fileBytes) : left(fileBytes) {}

  Result<Program> read(const file::Program &from) {
    Program program;
    Problem &problem = program.problem;
    if (from.name())
      problem.name = from.name()->str();
    problem.numMicrobatches = from.num_microbatches();
    problem.slices = from.slices() == 0 ? 1 : from.slices();
    copy(from.stages(), problem.stages);
    copy(from.placement(), problem.placement);
    copy(from.chains(), problem.chains);
    problem.link = {from.latency(), from.bytes_per_time()};
    problem.hostLink = {from.host_latency(), from.host_bytes_per_time()};
    problem.memory = from.memory();
    copy(from.weights(), problem.weights);
    problem.overlap = from.overlap();
    problem.postValidation = from.post_validation();
    if (!readTied(from, problem.tied))
      return refuse("is damaged: its tied stages do not add up; write it "
                    "again");

    problem.numRanks = from.ranks() ? from.ranks()->size() : 0;
    program.ranks.resize(problem.numRanks);
    size_t numInstructions = 0;
    for (int32_t r = 0; r < problem.numRanks; ++r) {
      const file::Rank &rank = *from.ranks()->Get(r);
      if (!checkFlags(rank.instructions()))
        return refuse("is damaged: rank " + std::to_string(r) +
                      " has an instruction whose flag \"joined\" is not 0 or "
                      "1; write it again");
      copy(rank.instructions(), program.ranks[r].instructions);
      copy(rank.waits(), program.ranks[r].waits);
      copy(rank.slot_bytes(), program.ranks[r].slotBytes);
      copy(rank.host_slot_bytes(), program.ranks[r].hostSlotBytes);
      copy(rank.times(), program.ranks[r].times);
      numInstructions += program.ranks[r].instructions.size();
    }
    // Each is used by an instruction at least.
    if (!readLists(from.rank_set_ends(), from.rank_set_members(),
                   numInstructions, program.rankSets))
      return refuse("is damaged: its rank sets do not add up; write it again");
    if (overflow)
      return refuse("is damaged: its parts overlap; write it again");
    return program;
  }

private:
  template <typename FileVector, typename T>
  void copy(const FileVector *from, std::vector<T> &to) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!from || from->size() == 0 || overflow)
      return;
    const size_t bytes = from->size() * sizeof(T);
    overflow = bytes > left;
    if (overflow)
      return;
    left -= bytes;
    to.resize(from->size());
    std::memcpy(to.data(), from->Data(), bytes);
  }

  /// No bool may be made of anything but 0 and 1. Reads bytes: in a damaged
  /// file the structs may lie anywhere.
  template <typename FileVector>
  static bool checkFlags(const FileVector *instructions) {
    unsigned flags = 0;
    for (size_t i = 0; instructions && i < instructions->size(); ++i)
      flags |=
          instructions
              ->Data()[i * sizeof(Instruction) + offsetof(Instruction, joined)];
    return flags <= 1;
  }

  /// At most `limit` lists, one after the other.
  bool readLists(const flatbuffers::Vector<uint32_t> *fileEnds,
                 const flatbuffers::Vector<int32_t> *fileMembers, size_t limit,
                 std::vector<std::vector<int32_t>> &lists) {
    std::vector<uint32_t> ends;
    std::vector<int32_t> members;
    copy(fileEnds, ends);
    copy(fileMembers, members);
    if (ends.size() > limit)
      return false;
    lists.reserve(ends.size());
    uint32_t begin = 0;
    for (uint32_t end : ends) {
      if (end < begin || end > members.size())
        return false;
      lists.emplace_back(members.begin() + begin, members.begin() + end);
      begin = end;
    }
    return begin == members.size();
  }

  bool readTied(const file::Program &from, std::vector<TiedStages> &tied) {
    std::vector<std::vector<int32_t>> lists;
    std::vector<int64_t> bytes;
    copy(from.tied_bytes(), bytes);
    if (!readLists(from.tied_ends(), from.tied_stages(), bytes.size(), lists) ||
        lists.size() != bytes.size())
      return false;
    for (size_t k = 0; k < lists.size(); ++k)
      tied.push_back({std::move(lists[k]), bytes[k]});
    return true;
  }

  size_t left;
  bool overflow = false;
};

Status checkHash(std::string_view what, const ProgramHash &hash,
                 const file::Hash *field) {
  file::Hash copy; // in a damaged file it may lie anywhere
  if (field)
    std::memcpy(&copy, field, sizeof(copy));
  const ProgramHash stored = {copy.low(), copy.high()};
  if (hash == stored)
    return success();
  return refuse("is damaged: the hash of its " + std::string(what) + " is " +
                hash.str() + ", not " + stored.str() +
                "; copy or write it again");
}

/// Opens, reads at most as many bytes as the head says and one more, and says
/// why not.
Result<std::vector<uint8_t>> readBytes(const std::string &path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return Failure{"is a directory; a program file (.psp) is needed"};
  const std::unique_ptr<std::FILE, int (*)(std::FILE *)> stream(
      std::fopen(path.c_str(), "rb"), std::fclose);
  if (!stream)
    return Failure{"cannot be opened: " + systemError() + "; check the path"};
  std::setvbuf(stream.get(), nullptr, _IONBF, 0);

  std::vector<uint8_t> bytes(kHeadBytes);
  bytes.resize(std::fread(bytes.data(), 1, kHeadBytes, stream.get()));
  if (std::ferror(stream.get()))
    return Failure{"cannot be read: " + systemError()};
  if (Status status = checkHead(bytes); !status)
    return status.failure();

  const size_t limit = declaredBytes(bytes) + 1;
  const uintmax_t known = fs::file_size(path, error);
  if (!error)
    bytes.reserve(std::min<uintmax_t>(known, limit));
  constexpr size_t kChunk = size_t(1) << 20;
  while (bytes.size() < limit) {
    const size_t at = bytes.size();
    const size_t want = std::min(kChunk, limit - at);
    bytes.resize(at + want);
    const size_t got = std::fread(bytes.data() + at, 1, want, stream.get());
    bytes.resize(at + got);
    if (std::ferror(stream.get()))
      return Failure{"cannot be read: " + systemError()};
    if (got < want)
      break;
  }
  return bytes;
}

} // namespace

Result<Program> penstock::deserialize(Bytes bytes) {
  if (Status status = checkHead(bytes); !status)
    return status.failure();
  const size_t declared = declaredBytes(bytes);
  if (bytes.size() < declared)
    return refuse("is truncated: " + std::to_string(bytes.size()) + " of " +
                  std::to_string(declared) + " bytes are there; copy it again");
  if (bytes.size() > declared)
    return refuse("has bytes after its end at " + std::to_string(declared) +
                  "; copy it again");
  // The accessors need the alignment that the file was built for.
  std::vector<uint8_t> aligned;
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) != 0) {
    aligned.assign(bytes.begin(), bytes.end());
    bytes = aligned;
  }

  constexpr std::string_view damaged =
      "is damaged: its structure does not hold together; write it again";
  constexpr unsigned maxDepth = 2;
  flatbuffers::Verifier headVerifier(bytes.data(), bytes.size(), maxDepth);
  if (!headVerifier.VerifySizePrefixedBuffer<file::Header>(
          file::ProgramIdentifier()))
    return refuse(damaged);
  const uint32_t version =
      flatbuffers::GetSizePrefixedRoot<file::Header>(bytes.data())->version();
  if (version > kProgramFileVersion)
    return refuse("has format version " + std::to_string(version) +
                  ", and this Penstock reads only " +
                  std::to_string(kProgramFileVersion) +
                  "; update Penstock, or write the file with this one");
  // Those before had another hash.
  if (version > 0 && version < kProgramFileVersion)
    return refuse("has format version " + std::to_string(version) +
                  ", and this Penstock reads only " +
                  std::to_string(kProgramFileVersion) +
                  "; write the file again with this one");
  flatbuffers::Verifier verifier(bytes.data(), bytes.size(), maxDepth,
                                 /*max_tables=*/kMaxRanks + 1);
  if (version == 0 || !file::VerifySizePrefixedProgramBuffer(verifier))
    return refuse(damaged);

  const file::Program &from = *file::GetSizePrefixedProgram(bytes.data());
  Result<Program> program = Reader(bytes.size()).read(from);
  if (!program)
    return program;
  if (Status status = checkHash("content", hashProgram(*program), from.hash());
      !status)
    return status.failure();
  if (Status status =
          checkHash("certificate", hashTimes(*program), from.times_hash());
      !status)
    return status.failure();
  if (Status status = checkProgram(*program); !status)
    return status.failure();
  return program;
}

Result<Program> penstock::readProgramFile(const std::string &path) {
  Result<std::vector<uint8_t>> bytes = readBytes(path);
  if (!bytes)
    return Failure{path + ": " + bytes.message()};
  Result<Program> program = deserialize(*bytes);
  if (!program)
    return Failure{path + ": " + program.message(), program.failure().site};
  return program;
}
