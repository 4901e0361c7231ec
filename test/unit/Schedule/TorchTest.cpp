//===- TorchTest.cpp - The orders are those of torch ----------------------===//
//
// torch.distributed.pipelining writes a schedule as a CSV table, one row a
// rank. Its idle cells follow from rules that are repeated here; the actions
// are ours. The tables are known by the first digits of their SHA-256, with LF
// line ends; the one of InterleavedZeroBubble (p, v, m = 2, 2, 8) is a file of
// torch's own tests, zb1p_2rank_2stagep_compute.csv.
//
//===----------------------------------------------------------------------===//

#include "../Support/FamilyChecks.h"
#include "../Support/TorchCsv.h"

#include <set>

using namespace penstock;
using namespace penstock::test;

namespace {

using Cells = std::vector<std::string>; ///< of a rank; empty: idle

/// The cells of every rank. `idle(rank, instructions, k)` is the number of idle
/// cells in front of instruction k.
template <typename Idle>
std::vector<Cells> tableOf(const Program &order, Idle &&idle) {
  std::vector<Cells> table;
  for (size_t r = 0; r < order.ranks.size(); ++r) {
    const auto &list = order.ranks[r].instructions;
    Cells &row = table.emplace_back();
    for (size_t k = 0; k < list.size(); ++k) {
      row.resize(row.size() + idle(static_cast<int>(r), list, k));
      row.push_back(std::to_string(list[k].stage) + letter(list[k].op) +
                    std::to_string(list[k].microbatch));
    }
  }
  return table;
}

std::string csv(const std::vector<Cells> &table) {
  std::string text;
  for (const Cells &row : table)
    for (size_t k = 0; k < row.size(); ++k)
      text += row[k] + (k + 1 < row.size() ? ',' : '\n');
  return text;
}

std::string hashOf(const std::vector<Cells> &table) {
  return sha256(csv(table));
}

using List = std::vector<Instruction>;

/// Rows that start `r` cells late, with `gap` idle cells for every rank that
/// follows between the forwards and the backwards.
std::vector<Cells> allForwardsFirst(const Result<Program> &order, int gap) {
  const int last = order->problem.numRanks - 1;
  return tableOf(*order, [&](int r, const List &list, size_t k) {
    if (k == 0)
      return r;
    const bool turn =
        list[k].op != Op::Forward && list[k - 1].op == Op::Forward;
    return turn ? gap * (last - r) : 0;
  });
}

std::vector<Cells> interleavedTable(int p, int v, int m) {
  const Problem problem = loopedPipeline(p, v, m);
  const int g = interleavedGroup(p, m), n = m * v;
  return tableOf(*interleaved1F1B(problem), [&](int r, const List &list,
                                                size_t k) {
    const int w = std::min((v - 1) * g + 2 * (p - 1 - r), n);
    const int position = static_cast<int>(k);
    const int behindWarmup =
        position == w ? std::max(0, v * p + 2 * (p - 1 - r) - (w + r)) : 0;
    const bool coolDown = position >= 2 * n - w && list[k].op == Op::Backward;
    return (k == 0 ? r : 0) + behindWarmup + coolDown;
  });
}

/// Puts off every forward until its activation is there, step by step: torch's
/// last pass over this table. Nothing but forwards is put off.
std::vector<Cells> addBubbles(const std::vector<Cells> &table) {
  std::vector<Cells> result(table.size());
  std::vector<size_t> next(table.size(), 0);
  std::set<std::string> done;
  for (bool more = true; more;) {
    more = false;
    std::vector<std::string> ended;
    for (size_t r = 0; r < table.size(); ++r) {
      if (next[r] == table[r].size())
        continue;
      more = true;
      const std::string &cell = table[r][next[r]];
      const size_t letter = cell.find('F');
      const int stage = cell.empty() ? 0 : std::stoi(cell);
      if (letter != std::string::npos && stage > 0 &&
          !done.count(std::to_string(stage - 1) + cell.substr(letter))) {
        result[r].push_back("");
        continue;
      }
      result[r].push_back(cell);
      ended.push_back(cell);
      ++next[r];
    }
    done.insert(ended.begin(), ended.end());
  }
  return result;
}

std::vector<Cells> interleavedZBTable(int p, int v, int m) {
  const int g = interleavedGroup(p, m);
  const auto table =
      tableOf(*interleavedZB(loopedPipeline(p, v, m)), [&](int r, const List &,
                                                           size_t k) {
        const int w = std::min((v - 1) * g + p - 1 - r, m * v);
        return (k == 0 ? r : 0) + (static_cast<int>(k) == w ? p - r - 1 : 0);
      });
  return addBubbles(table);
}

} // namespace

TEST(Torch, GPipe) {
  EXPECT_EQ(hashOf(allForwardsFirst(gpipe(pipeline(4, 8)), 3)), "521c9c1f818e");
}

TEST(Torch, OneForwardOneBackward) {
  const Result<Program> order = oneForwardOneBackward(pipeline(4, 8));
  EXPECT_EQ(
      hashOf(tableOf(*order, [](int, const List &, size_t) { return 0; })),
      "1eecbf975758");
}

TEST(Torch, LoopedBfs) {
  EXPECT_EQ(hashOf(allForwardsFirst(breadthFirst(loopedPipeline(4, 2, 8)), 2)),
            "ef1585d325bc");
}

TEST(Torch, Interleaved1F1B) {
  EXPECT_EQ(hashOf(interleavedTable(2, 2, 4)), "8b7b8d055f1f");
  EXPECT_EQ(hashOf(interleavedTable(4, 2, 8)), "ca8f5d8bc20f");
  EXPECT_EQ(hashOf(interleavedTable(4, 2, 3)), "4a5ee23100ec");
  EXPECT_EQ(hashOf(interleavedTable(8, 2, 8)), "33c4701144fb");
  EXPECT_EQ(hashOf(interleavedTable(4, 4, 16)), "63f2a9e2a419");
}

TEST(Torch, InterleavedZeroBubble) {
  EXPECT_EQ(hashOf(interleavedZBTable(2, 2, 8)), "47447dbd4824");
}
