//===- FileTest.cpp - The program file ------------------------------------===//
//
// A program file may come from anywhere: whatever its bytes are, the loader
// refuses it in words or returns a well-formed program. Run under ASan and
// UBSan too.
//
//===----------------------------------------------------------------------===//

#include "penstock/Program/File.h"
#include "Program_generated.h"

#include "Certified.h"
#include "RandomProgram.h"

#include "penstock/Program/Certificate.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>

namespace fs = std::filesystem;
using namespace penstock;
using test::certifiedProgram;
using test::SlowCertificate;

namespace {

using Bytes = std::vector<uint8_t>;

/// A small program with every table filled.
Program small() {
  for (uint64_t seed = 0;; ++seed) {
    Program program = test::RandomProgram(seed, 2, 4).make();
    const RankProgram &rank = program.ranks[0];
    if (program.ranks.size() == 2 && rank.waits.size() &&
        rank.slotBytes.size() && program.rankSets.size() &&
        program.problem.chains.size() && program.problem.name.size() &&
        program.problem.weights.size() && program.problem.tied.size())
      return program;
  }
}

void setVersion(Bytes &bytes, uint32_t version) {
  auto *root = reinterpret_cast<flatbuffers::Table *>(
      const_cast<file::Program *>(file::GetSizePrefixedProgram(bytes.data())));
  ASSERT_TRUE(root->SetField<uint32_t>(file::Program::VT_VERSION, version, 0));
}

/// Loads bytes that someone may have forged: where only the stored hashes are
/// in the way, they are made to match.
Result<Program> deserializeForged(Bytes bytes) {
  for (bool certificate : {false, true}) {
    Result<Program> program = deserialize(bytes);
    const std::string before = std::string("the hash of its ") +
                               (certificate ? "certificate" : "content") +
                               " is ";
    const size_t at =
        program ? std::string::npos : program.message().find(before);
    if (at == std::string::npos)
      continue;
    const std::string digits = program.message().substr(at + before.size(), 32);
    const file::Program &root = *file::GetSizePrefixedProgram(bytes.data());
    if (const file::Hash *hash = certificate ? root.times_hash() : root.hash())
      *const_cast<file::Hash *>(hash) =
          file::Hash(std::stoull(digits.substr(16), nullptr, 16),
                     std::stoull(digits.substr(0, 16), nullptr, 16));
  }
  return deserialize(bytes);
}

class FileTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "pspXXXXXX").string();
    directory = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(directory); }

  std::string path(const char *name) { return (directory / name).string(); }
  void write(const std::string &path, const Bytes &bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  }
  Bytes contents(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(in), {});
  }
  size_t numFiles() {
    return std::distance(fs::directory_iterator(directory), {});
  }

  fs::path directory;
};

TEST_F(FileTest, RoundTrip) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Program program = test::RandomProgram(seed).make();
    const Bytes bytes = serialize(program);
    EXPECT_LE(bytes.size(), estimateFileBytes(program));
    Result<Program> loaded = deserialize(bytes);
    ASSERT_TRUE(loaded) << loaded.message();
    EXPECT_EQ(*loaded, program);
    EXPECT_EQ(hashProgram(*loaded), hashProgram(program));
    EXPECT_EQ(serialize(*loaded), bytes);
  }
}

TEST_F(FileTest, RoundTripThroughAFile) {
  for (const Program &program : {small(), certifiedProgram()}) {
    ASSERT_TRUE(writeProgramFile(program, path("a.psp")));
    EXPECT_EQ(contents(path("a.psp")), serialize(program));
    Result<Program> loaded = readProgramFile(path("a.psp"));
    ASSERT_TRUE(loaded) << loaded.message();
    EXPECT_EQ(*loaded, program);
  }
}

TEST_F(FileTest, ABigFileIsReadInPieces) {
  Program program = small();
  program.ranks[0].slotBytes.resize(500000, 3);
  ASSERT_TRUE(writeProgramFile(program, path("a.psp")));
  EXPECT_GT(fs::file_size(path("a.psp")), 3u << 20);
  Result<Program> loaded = readProgramFile(path("a.psp"));
  ASSERT_TRUE(loaded) << loaded.message();
  EXPECT_EQ(*loaded, program);
}

TEST_F(FileTest, MisalignedBytes) {
  const Program program = small();
  const Bytes bytes = serialize(program);
  for (size_t shift = 0; shift < 8; ++shift) {
    Bytes shifted(shift);
    shifted.insert(shifted.end(), bytes.begin(), bytes.end());
    Result<Program> loaded = deserialize(std::span(shifted).subspan(shift));
    ASSERT_TRUE(loaded) << loaded.message();
    EXPECT_EQ(*loaded, program);
  }
}

TEST_F(FileTest, TheHashIsStable) {
  Program program;
  program.problem.name = "tiny";
  program.problem.numRanks = 1;
  program.problem.numMicrobatches = 1;
  program.problem.stages.resize(1);
  program.problem.placement = {0};
  program.ranks.resize(1);
  program.ranks[0].instructions.resize(1);
  EXPECT_EQ(hashProgram(program).str(), "612f16343469e00b481506b211f0af76");
  EXPECT_EQ((ProgramHash{0x1, 0xab}).str(), "00000000000000ab0000000000000001");
}

TEST_F(FileTest, EveryFieldChangesTheHash) {
  const Program program = small();
  const std::vector<std::function<void(Program &)>> changes = {
      [](Program &p) { p.problem.name += ' '; },
      [](Program &p) { ++p.problem.numRanks; },
      [](Program &p) { ++p.problem.numMicrobatches; },
      [](Program &p) { ++p.problem.slices; },
      [](Program &p) { p.problem.stages.emplace_back(); },
      [](Program &p) { ++p.problem.stages[0].firstLayer; },
      [](Program &p) { ++p.problem.stages[0].numLayers; },
      [](Program &p) { ++p.problem.stages[0].cost.forward; },
      [](Program &p) { ++p.problem.stages[0].cost.backward; },
      [](Program &p) { ++p.problem.stages[0].cost.input; },
      [](Program &p) { ++p.problem.stages[0].cost.weight; },
      [](Program &p) { ++p.problem.stages[0].cost.recompute; },
      [](Program &p) { ++p.problem.stages[0].bytes.output; },
      [](Program &p) { ++p.problem.stages[0].bytes.stash; },
      [](Program &p) { ++p.problem.stages[0].bytes.parameters; },
      [](Program &p) { ++p.problem.stages[0].bytes.gradients; },
      [](Program &p) { ++p.problem.stages[0].bytes.optimizer; },
      [](Program &p) { ++p.problem.placement[0]; },
      [](Program &p) { p.problem.placement.push_back(0); },
      [](Program &p) { ++p.problem.chains[0]; },
      [](Program &p) { p.problem.chains.clear(); },
      [](Program &p) { ++p.problem.weights[0]; },
      [](Program &p) { p.problem.weights.clear(); },
      [](Program &p) { p.problem.overlap += 0.125; },
      [](Program &p) { p.problem.postValidation ^= true; },
      [](Program &p) { ++p.problem.tied[0].stages[0]; },
      [](Program &p) { ++p.problem.tied[0].bytes; },
      [](Program &p) { p.problem.tied.pop_back(); },
      [](Program &p) { p.problem.tied.push_back(p.problem.tied[0]); },
      [](Program &p) { ++p.problem.link.latency; },
      [](Program &p) { ++p.problem.link.bytesPerTime; },
      [](Program &p) { ++p.problem.hostLink.latency; },
      [](Program &p) { ++p.problem.hostLink.bytesPerTime; },
      [](Program &p) { ++p.problem.memory; },
      [](Program &p) { p.ranks.emplace_back(); },
      [](Program &p) { p.ranks[0].instructions.emplace_back(); },
      [](Program &p) { p.ranks[0].instructions[0].op = Op::Step; },
      [](Program &p) { p.ranks[0].instructions[0].joined ^= true; },
      [](Program &p) { p.ranks[0].instructions[0].payload = Payload(7); },
      [](Program &p) { ++p.ranks[0].instructions[0].queue; },
      [](Program &p) { ++p.ranks[0].instructions[0].comm; },
      [](Program &p) { ++p.ranks[0].instructions[0].numWaits; },
      [](Program &p) { ++p.ranks[0].instructions[0].stage; },
      [](Program &p) { ++p.ranks[0].instructions[0].microbatch; },
      [](Program &p) { ++p.ranks[0].instructions[0].peer; },
      [](Program &p) { ++p.ranks[0].instructions[0].firstWait; },
      [](Program &p) { ++p.ranks[0].instructions[0].bytes; },
      [](Program &p) { ++p.ranks[0].instructions[0].slots[0]; },
      [](Program &p) { ++p.ranks[0].instructions[0].slots[1]; },
      [](Program &p) { ++p.ranks[0].instructions[0].slots[2]; },
      [](Program &p) { ++p.ranks[0].instructions[0].slots[3]; },
      [](Program &p) { ++p.ranks[0].waits[0]; },
      [](Program &p) { p.ranks[0].waits.push_back(0); },
      [](Program &p) { ++p.ranks[0].slotBytes[0]; },
      [](Program &p) { p.ranks[0].slotBytes.push_back(0); },
      [](Program &p) { p.ranks[0].hostSlotBytes.push_back(0); },
      [](Program &p) { p.ranks[0].hostSlotBytes.push_back(1); },
      [](Program &p) { p.ranks[1].hostSlotBytes.push_back(0); },
      [](Program &p) { ++p.rankSets[0][0]; },
      [](Program &p) { p.rankSets[0].push_back(9); },
      [](Program &p) { p.rankSets.emplace_back(); },
      // The same bytes, cut elsewhere.
      [](Program &p) {
        p.rankSets = {{p.rankSets[0]}, {7}};
        p.rankSets[0].push_back(8);
      },
      [](Program &p) {
        p.rankSets = {{p.rankSets[0]}, {8, 7}};
      },
      [](Program &p) {
        p.ranks[1].instructions.insert(p.ranks[1].instructions.begin(),
                                       p.ranks[0].instructions.back());
        p.ranks[0].instructions.pop_back();
      },
  };
  std::vector<std::string> hashes = {hashProgram(program).str()};
  for (const auto &change : changes) {
    Program changed = program;
    change(changed);
    EXPECT_FALSE(changed == program) << "change " << hashes.size();
    hashes.push_back(hashProgram(changed).str());
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

TEST_F(FileTest, EveryTruncationIsRefused) {
  for (const Program &program : {small(), certifiedProgram()}) {
    const Bytes bytes = serialize(program);
    for (size_t size = 0; size < bytes.size(); ++size) {
      // A copy of its own, so that a read past the end is seen.
      const Bytes part(bytes.begin(), bytes.begin() + size);
      Result<Program> loaded = deserialize(part);
      ASSERT_FALSE(loaded) << size;
      const std::string expected =
          size == 0 ? "the program file is empty"
          : size < 12
              ? "the program file is not one"
              : "the program file is truncated: " + std::to_string(size) +
                    " of " + std::to_string(bytes.size()) + " bytes are there";
      EXPECT_EQ(loaded.message().substr(0, expected.size()), expected);
    }
    // A truncation that hides itself.
    for (size_t size = 12; size < bytes.size(); ++size) {
      Bytes part(bytes.begin(), bytes.begin() + size);
      flatbuffers::WriteScalar<uint32_t>(part.data(), size - 4);
      EXPECT_FALSE(deserializeForged(part)) << size;
    }
  }
}

TEST_F(FileTest, EveryBitFlipIsRefusedOrLoadsEqual) {
  for (const Program &program : {small(), certifiedProgram()}) {
    Bytes bytes = serialize(program);
    size_t equal = 0;
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= 1 << bit % 8;
      Result<Program> loaded = deserialize(bytes);
      if (loaded) {
        ++equal;
        ASSERT_EQ(*loaded, program) << bit;
      } else {
        ASSERT_FALSE(loaded.message().empty());
      }
      bytes[bit / 8] ^= 1 << bit % 8;
    }
    EXPECT_LT(equal, bytes.size()) << "only padding may change";
  }
}

TEST_F(FileTest, ForgedBytesAreRefusedOrWellFormed) {
  std::mt19937_64 rng(1);
  size_t accepted = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Bytes bytes =
        serialize(seed == 0   ? small()
                  : seed == 1 ? certifiedProgram()
                              : test::RandomProgram(seed, 3, 4).make());
    for (int round = 0; round < 400; ++round) {
      Bytes forged = bytes;
      for (size_t n = 1 + rng() % 4; n > 0; --n) {
        const size_t width = size_t(1) << rng() % 4;
        const size_t at = rng() % (forged.size() - width);
        // Small and extreme values meet more checks than random ones.
        const uint64_t values[] = {
            0,     1,        rng() % 64,           ~uint64_t(0),
            rng(), 1u << 31, rng() % forged.size()};
        const uint64_t value = values[rng() % std::size(values)];
        std::memcpy(forged.data() + at, &value, width);
      }
      Result<Program> loaded = deserializeForged(forged);
      if (!loaded)
        continue;
      ++accepted;
      Status status = wellFormed(*loaded);
      ASSERT_TRUE(status) << status.message();
      EXPECT_TRUE(!hasCertificate(*loaded) || SlowCertificate(*loaded).holds());
      Result<Program> again = deserialize(serialize(*loaded));
      ASSERT_TRUE(again) << again.message();
      // By bytes: == on doubles would do too, but NaN is not there.
      EXPECT_EQ(*again, *loaded);
      EXPECT_FALSE(dump(*loaded).empty());
    }
  }
  EXPECT_GT(accepted, 100u) << "the hash was not forged";
}

TEST_F(FileTest, IllFormedContentIsRefused) {
  std::mt19937_64 rng(2);
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Program program = test::RandomProgram(seed, 3, 6).make();
    auto &rank = program.ranks[rng() % program.ranks.size()];
    if (rank.instructions.empty())
      continue;
    auto &inst = rank.instructions[rng() % rank.instructions.size()];
    const int32_t values[] = {-2, -1, 0, 1, 7, INT32_MAX, INT32_MIN};
    const int32_t value = values[rng() % std::size(values)];
    switch (rng() % 8) {
    case 0:
      inst.op = static_cast<Op>(value);
      break;
    case 1:
      inst.joined = !inst.joined;
      break;
    case 2:
      inst.payload = static_cast<Payload>(value);
      break;
    case 3:
      inst.numWaits = value;
      break;
    case 4:
      inst.stage = value;
      break;
    case 5:
      inst.peer = value;
      break;
    case 6:
      inst.firstWait = value;
      break;
    case 7:
      inst.slots[rng() % 4] = value;
      break;
    }
    Status status = wellFormed(program);
    Result<Program> loaded = deserialize(serialize(program));
    ASSERT_EQ(bool(loaded), bool(status));
    if (loaded) {
      EXPECT_EQ(*loaded, program);
      continue;
    }
    ++refused;
    EXPECT_EQ(loaded.message(), describe(program, status.failure().site) +
                                    ": " + status.message());
    EXPECT_EQ(loaded.failure().site, status.failure().site);
  }
  EXPECT_GT(refused, 500u);
}

//===----------------------------------------------------------------------===//
// Certificates
//===----------------------------------------------------------------------===//

TEST_F(FileTest, TheHashDoesNotCoverTheCertificate) {
  Program program = certifiedProgram();
  const ProgramHash hash = hashProgram(program);
  const size_t size = serialize(program).size();
  dropCertificate(program);
  EXPECT_EQ(hashProgram(program), hash);
  EXPECT_LT(serialize(program).size(), size);
  Result<Program> loaded = deserialize(serialize(program));
  ASSERT_TRUE(loaded) << loaded.message();
  EXPECT_FALSE(hasCertificate(*loaded));
}

TEST_F(FileTest, EveryCorruptedTimeIsRefused) {
  const Program program = certifiedProgram();
  const Bytes bytes = serialize(program);
  size_t stillRight = 0;
  for (int32_t r = 0; r < 3; ++r)
    for (uint32_t i = 0; i < program.ranks[r].times.size(); ++i)
      for (uint32_t wrong : {0u, 1u, 2u, 3u, 4u, 5u, 77u, ~0u}) {
        if (wrong == program.ranks[r].times[i])
          continue;
        Bytes corrupted = bytes;
        const file::Rank &rank =
            *file::GetSizePrefixedProgram(corrupted.data())->ranks()->Get(r);
        const_cast<flatbuffers::Vector<uint32_t> *>(rank.times())
            ->Mutate(i, wrong);
        Result<Program> loaded = deserialize(corrupted);
        ASSERT_FALSE(loaded);
        EXPECT_EQ(loaded.message().find("the program file is damaged: the hash "
                                        "of its certificate is "),
                  0u)
            << loaded.message();
        // Made on purpose, it is refused unless it is a certificate.
        loaded = deserializeForged(corrupted);
        Program changed = program;
        changed.ranks[r].times[i] = wrong;
        const Status status = checkCertificate(changed);
        ASSERT_EQ(bool(loaded), bool(status));
        if (loaded) {
          ++stillRight;
          EXPECT_EQ(*loaded, changed);
          EXPECT_TRUE(SlowCertificate(changed).holds());
        } else {
          EXPECT_EQ(loaded.message(), describe(changed, status.failure().site) +
                                          ": " + status.message());
          EXPECT_EQ(loaded.failure().site, status.failure().site);
        }
      }
  EXPECT_GT(stillRight, 0u);
}

TEST_F(FileTest, AForgedCertificate) {
  Program program = certifiedProgram();
  program.ranks[0].times[3] = 0;
  const std::string why =
      "rank 0, instruction 3 (barrier): the certificate does not hold: it is "
      "not later than the item before on its queue; certify the program anew, "
      "as penstock-translate --pipe-to-program does";
  write(path("a.psp"), serialize(program));
  EXPECT_EQ(readProgramFile(path("a.psp")).message(),
            path("a.psp") + ": " + why);
  // Neither is it written.
  EXPECT_EQ(writeProgramFile(program, path("b.psp")).message(),
            path("b.psp") + ": not written: " + why);
  EXPECT_FALSE(fs::exists(path("b.psp")));
}

TEST_F(FileTest, ACertificateOfSomeRanks) {
  Program program = certifiedProgram();
  program.ranks[1].times.clear();
  EXPECT_EQ(deserialize(serialize(program)).message(),
            "rank 1: the certificate does not hold: not every instruction has "
            "a time; certify the program anew, as penstock-translate "
            "--pipe-to-program does");
}

TEST_F(FileTest, ACertificateOrItsHashAlone) {
  auto remove = [](auto *table, flatbuffers::voffset_t field) {
    auto *vtable = const_cast<uint8_t *>(
        reinterpret_cast<const flatbuffers::Table *>(table)->GetVTable());
    flatbuffers::WriteScalar<flatbuffers::voffset_t>(vtable + field, 0);
  };
  Bytes bytes = serialize(certifiedProgram());
  remove(file::GetSizePrefixedProgram(bytes.data()),
         file::Program::VT_TIMES_HASH);
  const std::string message = deserialize(bytes).message();
  EXPECT_NE(message.find(", not 00000000000000000000000000000000; copy or "
                         "write it again"),
            std::string::npos)
      << message;

  bytes = serialize(certifiedProgram());
  for (const file::Rank *rank :
       *file::GetSizePrefixedProgram(bytes.data())->ranks())
    remove(rank, file::Rank::VT_TIMES);
  EXPECT_EQ(deserialize(bytes).message().find(
                "the program file is damaged: the hash of its certificate is "
                "00000000000000000000000000000000, not "),
            0u);
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

TEST_F(FileTest, NotThere) {
  EXPECT_EQ(readProgramFile(path("none.psp")).message(),
            path("none.psp") + ": cannot be opened: No such file or directory; "
                               "check the path");
}

TEST_F(FileTest, ADirectory) {
  EXPECT_EQ(readProgramFile(directory.string()).message(),
            directory.string() +
                ": is a directory; a program file (.psp) is needed");
}

TEST_F(FileTest, Unreadable) {
  // Opens, and fails at the first byte.
  const char *memory = "/proc/self/mem";
  if (!fs::exists(memory))
    GTEST_SKIP();
  EXPECT_EQ(readProgramFile(memory).message(),
            "/proc/self/mem: cannot be read: Input/output error");
}

TEST_F(FileTest, Empty) {
  write(path("a.psp"), {});
  EXPECT_EQ(readProgramFile(path("a.psp")).message(),
            path("a.psp") + ": the program file is empty; penstock-translate "
                            "--pipe-to-program writes one");
}

TEST_F(FileTest, NotAProgram) {
  const std::string text = "pipe.schedule @train ranks(4) microbatches(8)\n";
  write(path("a.psp"), Bytes(text.begin(), text.end()));
  EXPECT_EQ(readProgramFile(path("a.psp")).message(),
            path("a.psp") +
                ": the program file is text and no compiled program; compile a "
                "spec with penstock-opt SPEC.mlir --pipe-compile | "
                "penstock-translate --pipe-to-program - -o FILE.psp");
}

TEST_F(FileTest, AnEndlessFile) {
  EXPECT_EQ(readProgramFile("/dev/zero").message(),
            "/dev/zero: the program file is not one (it has no \"PSPR\" mark); "
            "penstock-translate --pipe-to-program writes one");
}

TEST_F(FileTest, TooLarge) {
  Bytes bytes = serialize(small());
  flatbuffers::WriteScalar<uint32_t>(bytes.data(), kMaxProgramFileBytes - 3);
  EXPECT_EQ(deserialize(bytes).message(),
            "the program file claims to be larger than any can be, 2000000001 "
            "bytes; write it again");
}

TEST_F(FileTest, Truncated) {
  Bytes bytes = serialize(small());
  const size_t size = bytes.size();
  bytes.resize(100);
  write(path("a.psp"), bytes);
  EXPECT_EQ(readProgramFile(path("a.psp")).message(),
            path("a.psp") + ": the program file is truncated: 100 of " +
                std::to_string(size) + " bytes are there; copy it again");
}

TEST_F(FileTest, AppendedBytes) {
  Bytes bytes = serialize(small());
  const size_t size = bytes.size();
  for (size_t extra : {1, 4, 4096}) {
    bytes.resize(size + extra);
    write(path("a.psp"), bytes);
    EXPECT_EQ(readProgramFile(path("a.psp")).message(),
              path("a.psp") + ": the program file has bytes after its end at " +
                  std::to_string(size) + "; copy it again");
  }
}

TEST_F(FileTest, OtherVersions) {
  Bytes bytes = serialize(small());
  setVersion(bytes, kProgramFileVersion + 1);
  EXPECT_EQ(deserialize(bytes).message(),
            "the program file has format version 4, and this Penstock reads "
            "only 3; update Penstock, or write the file with this one");
  for (const char *old : {"1", "2"}) {
    setVersion(bytes, std::stoi(old));
    EXPECT_EQ(deserialize(bytes).message(),
              std::string("the program file has format version ") + old +
                  ", and this Penstock reads only 3; write the file again with "
                  "this one");
  }
}

constexpr const char *kStructure =
    "the program file is damaged: its structure does not hold together; write "
    "it again";

TEST_F(FileTest, NoVersion) {
  Bytes bytes = serialize(small());
  setVersion(bytes, 0);
  EXPECT_EQ(deserialize(bytes).message(), kStructure);
}

TEST_F(FileTest, BrokenStructure) {
  Bytes bytes = serialize(small());
  flatbuffers::WriteScalar<uint32_t>(bytes.data() + 4, 1 << 30);
  EXPECT_EQ(deserialize(bytes).message(), kStructure) << "root offset";
}

TEST_F(FileTest, WrongHash) {
  const Program program = small();
  Bytes bytes = serialize(program);
  auto *hash = const_cast<file::Hash *>(
      file::GetSizePrefixedProgram(bytes.data())->hash());
  *hash = file::Hash(1, 2);
  EXPECT_EQ(deserialize(bytes).message(),
            "the program file is damaged: the hash of its content is " +
                hashProgram(program).str() +
                ", not 00000000000000020000000000000001; copy or write it "
                "again");
}

TEST_F(FileTest, IllFormed) {
  Program program;
  program.problem.name = "tiny";
  program.problem.numMicrobatches = 1;
  program.problem.numRanks = 1;
  program.problem.stages.resize(1);
  program.problem.placement = {0};
  program.ranks.resize(1);
  program.ranks[0].instructions.resize(1);
  program.ranks[0].instructions[0].stage = 7;
  program.ranks[0].instructions[0].microbatch = 0;
  const std::string why = "rank 0, instruction 0 (forward 7 mb 0): the stage "
                          "is 7; it must be 0 to 0";
  write(path("a.psp"), serialize(program));
  EXPECT_EQ(readProgramFile(path("a.psp")).message(),
            path("a.psp") + ": " + why);
  EXPECT_EQ(readProgramFile(path("a.psp")).failure().site, (Site{0, 0}));

  // Nothing is written, and what is there stays.
  write(path("b.psp"), {1, 2, 3});
  EXPECT_EQ(writeProgramFile(program, path("b.psp")).message(),
            path("b.psp") + ": not written: " + why);
  EXPECT_EQ(contents(path("b.psp")), Bytes({1, 2, 3}));

  program.ranks.clear();
  program.problem.numRanks = 0;
  EXPECT_EQ(deserialize(serialize(program)).message(),
            "program: the number of ranks is 0; it must be 1 to 1048576");
}

/// A file built by hand around one rank with one instruction.
template <typename Fn>
Bytes buildFile(Fn &&make) {
  flatbuffers::FlatBufferBuilder builder;
  make(builder);
  return Bytes(builder.GetBufferPointer(),
               builder.GetBufferPointer() + builder.GetSize());
}

TEST_F(FileTest, AFlagThatIsNoFlag) {
  Bytes bytes = buildFile([](flatbuffers::FlatBufferBuilder &builder) {
    std::vector<file::Instruction> instructions(2);
    const int32_t slots[] = {-1, -1, -1, -1};
    instructions[1] =
        file::Instruction(0, 2, 0, 0, 0, 0, 0, 0, -1, 0, 0, slots);
    auto rank =
        file::CreateRank(builder, builder.CreateVectorOfStructs(instructions));
    auto ranks = builder.CreateVector(&rank, 1);
    file::ProgramBuilder program(builder);
    program.add_version(kProgramFileVersion);
    program.add_ranks(ranks);
    file::FinishSizePrefixedProgramBuffer(builder, program.Finish());
  });
  EXPECT_EQ(deserialize(bytes).message(),
            "the program file is damaged: rank 0 has an instruction whose flag "
            "\"joined\" is not 0 or 1; write it again");
}

TEST_F(FileTest, PartsThatOverlap) {
  // A thousand ranks share one list of instructions.
  Bytes bytes = buildFile([](flatbuffers::FlatBufferBuilder &builder) {
    std::vector<file::Instruction> instructions(1000);
    auto rank =
        file::CreateRank(builder, builder.CreateVectorOfStructs(instructions));
    std::vector<flatbuffers::Offset<file::Rank>> shared(1000, rank);
    auto ranks = builder.CreateVector(shared);
    file::ProgramBuilder program(builder);
    program.add_version(kProgramFileVersion);
    program.add_ranks(ranks);
    file::FinishSizePrefixedProgramBuffer(builder, program.Finish());
  });
  EXPECT_EQ(deserialize(bytes).message(),
            "the program file is damaged: its parts overlap; write it again");
}

TEST_F(FileTest, RankSetsThatDoNotAddUp) {
  const std::vector<uint32_t> badEnds[] = {
      {2}, {4}, {2, 1, 3}, {1, 2, 3}, {~0u, 3}};
  for (const std::vector<uint32_t> &ends : badEnds) {
    Bytes bytes = buildFile([&](flatbuffers::FlatBufferBuilder &builder) {
      std::vector<file::Instruction> instructions(2);
      auto rank = file::CreateRank(builder,
                                   builder.CreateVectorOfStructs(instructions));
      auto ranks = builder.CreateVector(&rank, 1);
      auto endsOffset = builder.CreateVector(ends);
      auto members = builder.CreateVector(std::vector<int32_t>{0, 1, 2});
      file::ProgramBuilder program(builder);
      program.add_version(kProgramFileVersion);
      program.add_ranks(ranks);
      program.add_rank_set_ends(endsOffset);
      program.add_rank_set_members(members);
      file::FinishSizePrefixedProgramBuffer(builder, program.Finish());
    });
    EXPECT_EQ(deserialize(bytes).message(),
              "the program file is damaged: its rank sets do not add up; write "
              "it again");
  }
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

TEST_F(FileTest, AFileIsReplacedAsAWhole) {
  const Program program = small();
  write(path("a.psp"), Bytes(100000, 7));
  std::ifstream reader(path("a.psp"), std::ios::binary);
  ASSERT_TRUE(writeProgramFile(program, path("a.psp")));
  EXPECT_EQ(contents(path("a.psp")), serialize(program));
  EXPECT_EQ(numFiles(), 1u) << "no temporary file stays";
  // Who has the old file open still reads the old one.
  EXPECT_EQ(Bytes(std::istreambuf_iterator<char>(reader), {}),
            Bytes(100000, 7));
}

TEST_F(FileTest, ALinkStaysALink) {
  const Program program = small();
  write(path("a.psp"), {1});
  fs::create_symlink("a.psp", path("link.psp"));
  ASSERT_TRUE(writeProgramFile(program, path("link.psp")));
  EXPECT_TRUE(fs::is_symlink(path("link.psp")));
  EXPECT_EQ(contents(path("a.psp")), serialize(program));
}

TEST_F(FileTest, ADeviceIsWrittenTo) {
  ASSERT_TRUE(writeProgramFile(small(), "/dev/null"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FileTest, CannotWrite) {
  EXPECT_EQ(writeProgramFile(small(), path("no/a.psp")).message(),
            path("no/a.psp") + ": cannot write the program file: No such file "
                               "or directory");
  EXPECT_EQ(writeProgramFile(small(), directory.string()).message(),
            directory.string() +
                ": cannot write the program file: Is a directory");
  EXPECT_EQ(writeProgramFile(small(), "/dev/full").message(),
            "/dev/full: cannot write the program file: No space left on "
            "device");
  EXPECT_EQ(numFiles(), 0u);
}

} // namespace
