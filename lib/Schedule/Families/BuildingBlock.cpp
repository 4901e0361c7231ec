//===- BuildingBlock.cpp - Repeat, squeeze, reorder -----------------------===//
//
// 1. Repeat. F and I of micro-batch i stand 6i slots behind those of 0. Idle
//    slots take the W, oldest first; the rest stand at the end. The largest
//    number of activations alive on a rank, counted from F to W, is the limit.
// 2. Squeeze. Whatever stands before the first I of stage 0 or behind its last
//    F moves to the earliest free slot that what it needs and the limit allow,
//    in the order of slots. Then everything starts as early as the orders of
//    the ranks allow.
// 3. Reorder. The W behind the last F of stage 0 make room, the I there move to
//    the earliest slots, and the W fill what is left, oldest first. With fewer
//    than 2p micro-batches that would exceed the limit; then only the W behind
//    the last F of their rank make room.
//
// Each step keeps every action behind what it needs. Linear in the number of
// micro-batches; moving an action may take as many steps as there are ranks.
//
//===----------------------------------------------------------------------===//

#include "BuildingBlock.h"

#include <algorithm>
#include <string>

namespace penstock {

namespace {

/// The actions of a rank for one micro-batch.
enum Kind : int32_t { F0, F1, I1, I0, W1, W0 };
constexpr int32_t kNumKinds = 6, kPeriod = 6, kNone = -1;

/// Time and memory grow with more than the square of the ranks.
constexpr int32_t kMostRanks = 1024;

class Grid {
public:
  Grid(int32_t numRanks, int32_t numMicrobatches,
       BlockSlots (*slotsOf)(int32_t, int32_t));

  void squeeze();
  void reorder();

  /// Calls `fn(kind, microbatch)` for the actions of a rank in order.
  template <typename Fn>
  void forEach(int32_t rank, Fn &&fn) const {
    for (int32_t action : rows[rank])
      if (action != kNone)
        fn(kindOf(action), action / kNumKinds);
  }

private:
  static Kind kindOf(int32_t action) { return Kind(action % kNumKinds); }
  static bool isForward(Kind kind) { return kind <= F1; }
  static bool isWeight(Kind kind) { return kind >= W1; }

  int32_t slotOf(int32_t rank, Kind kind, int32_t mb) const {
    return slots[rank][mb * kNumKinds + kind];
  }
  void put(int32_t rank, int32_t action, int32_t slot) {
    rows[rank][slot] = action;
    slots[rank][action] = slot;
  }
  int32_t firstFree(int32_t rank, int32_t from) const {
    while (rows[rank][from] != kNone)
      ++from;
    return from;
  }
  int32_t numSlots() const;
  template <typename Fn>
  void forEachBySlot(Fn &&fn);
  int32_t earliest(int32_t rank, int32_t action) const;
  void fillIn(int32_t rank, int32_t from);
  std::vector<int32_t> countAlive(int32_t rank) const;
  void startEarly();

  const int32_t p, n;
  std::vector<std::vector<int32_t>> rows;  ///< of each rank, action by slot
  std::vector<std::vector<int32_t>> slots; ///< of each rank, slot by action
  int32_t firstInput;                      ///< slot of the first I of stage 0
  int32_t lastForward;                     ///< slot of its last F
};

} // namespace

Grid::Grid(int32_t numRanks, int32_t numMicrobatches,
           BlockSlots (*slotsOf)(int32_t, int32_t))
    : p(numRanks), n(numMicrobatches), rows(p), slots(p) {
  for (int32_t r = 0; r < p; ++r) {
    const BlockSlots block = slotsOf(r, p);
    rows[r].assign(block.input0 + kPeriod * (n - 1) + 1, kNone);
    slots[r].assign(size_t(n) * kNumKinds, kNone);
    for (int32_t mb = 0; mb < n; ++mb) {
      const int32_t action = mb * kNumKinds, later = mb * kPeriod;
      put(r, action + F0, block.forward0 + later);
      put(r, action + F1, block.forward1 + later);
      put(r, action + I1, block.input1 + later);
      put(r, action + I0, block.input0 + later);
    }
    fillIn(r, 0);
  }
  firstInput = slotOf(0, I0, 0);
  lastForward = slotOf(0, F0, n - 1);
}

int32_t Grid::numSlots() const {
  size_t most = 0;
  for (const auto &row : rows)
    most = std::max(most, row.size());
  return static_cast<int32_t>(most);
}

/// Calls `fn(rank, action, slot)` for all actions in the order of their slots;
/// `fn` may move them to earlier ones.
template <typename Fn>
void Grid::forEachBySlot(Fn &&fn) {
  const int32_t end = numSlots();
  for (int32_t slot = 0; slot < end; ++slot)
    for (int32_t r = 0; r < p; ++r)
      if (slot < static_cast<int32_t>(rows[r].size()) && rows[r][slot] != kNone)
        fn(r, rows[r][slot], slot);
}

/// The first slot behind all that an action needs.
int32_t Grid::earliest(int32_t rank, int32_t action) const {
  const int32_t mb = action / kNumKinds;
  const bool first = rank == 0, turn = rank == p - 1;
  auto after = [&](int32_t r, Kind kind) { return slotOf(r, kind, mb) + 1; };
  switch (kindOf(action)) {
  case F0:
    return first ? 0 : after(rank - 1, F0);
  case F1:
    return turn ? after(rank, F0) : after(rank + 1, F1);
  case I1:
    return std::max(after(rank, F1), first ? 0 : after(rank - 1, I1));
  case I0:
    return std::max(after(rank, F0),
                    turn ? after(rank, I1) : after(rank + 1, I0));
  case W1:
    return after(rank, I1);
  default:
    return after(rank, I0);
  }
}

/// Puts the W that have no slot into free ones from `from` on, oldest first.
void Grid::fillIn(int32_t rank, int32_t from) {
  auto &row = rows[rank];
  std::vector<int32_t> pending;
  size_t next = 0;
  for (size_t slot = 0; slot < row.size() || next < pending.size(); ++slot) {
    if (slot == row.size())
      row.push_back(kNone);
    const int32_t action = row[slot];
    if (action == kNone) {
      if (next < pending.size() && static_cast<int32_t>(slot) >= from)
        put(rank, pending[next++], static_cast<int32_t>(slot));
      continue;
    }
    const Kind kind = kindOf(action);
    const int32_t weight = action - kind + (kind == I1 ? W1 : W0);
    if ((kind == I0 || kind == I1) && slots[rank][weight] == kNone)
      pending.push_back(weight);
  }
}

/// Activations alive after each slot.
std::vector<int32_t> Grid::countAlive(int32_t rank) const {
  std::vector<int32_t> alive;
  alive.reserve(rows[rank].size());
  int32_t now = 0;
  for (int32_t action : rows[rank]) {
    if (action != kNone)
      now += isForward(kindOf(action)) - isWeight(kindOf(action));
    alive.push_back(now);
  }
  return alive;
}

void Grid::squeeze() {
  std::vector<std::vector<int32_t>> alive(p);
  int32_t limit = 0;
  for (int32_t r = 0; r < p; ++r) {
    alive[r] = countAlive(r);
    limit =
        std::max(limit, *std::max_element(alive[r].begin(), alive[r].end()));
  }
  forEachBySlot([&](int32_t r, int32_t action, int32_t slot) {
    if (slot >= firstInput && slot <= lastForward)
      return;
    const Kind kind = kindOf(action);
    const int32_t change = isForward(kind) - isWeight(kind);
    int32_t from = earliest(r, action);
    for (int32_t s = slot - 1; s >= from && change > 0; --s)
      if (alive[r][s] == limit)
        from = s + 1;
    rows[r][slot] = kNone;
    const int32_t to = firstFree(r, from);
    put(r, action, to);
    for (int32_t s = to; s < slot; ++s)
      alive[r][s] += change;
  });
  startEarly();
}

/// Every action starts when the one before it and what it needs have ended.
void Grid::startEarly() {
  std::vector<int32_t> clock(p, 0);
  forEachBySlot([&](int32_t r, int32_t action, int32_t slot) {
    rows[r][slot] = kNone;
    put(r, action, std::max(clock[r], earliest(r, action)));
    clock[r] = slots[r][action] + 1;
  });
  for (int32_t r = 0; r < p; ++r)
    rows[r].resize(clock[r]);
  lastForward = slotOf(0, F0, n - 1);
}

void Grid::reorder() {
  auto room = [&](int32_t r) { // the slot before that of the first W to move
    return n < 2 * p ? slotOf(r, F1, n - 1) : lastForward;
  };
  forEachBySlot([&](int32_t r, int32_t action, int32_t slot) {
    if (slot > room(r) && isWeight(kindOf(action)))
      rows[r][slot] = slots[r][action] = kNone;
  });
  forEachBySlot([&](int32_t r, int32_t action, int32_t slot) {
    if (slot <= lastForward || isForward(kindOf(action)))
      return;
    rows[r][slot] = kNone;
    put(r, action, firstFree(r, earliest(r, action)));
  });
  for (int32_t r = 0; r < p; ++r)
    fillIn(r, room(r) + 1);
}

Result<Program> repeatBlock(const Problem &problem, std::string_view family,
                            BlockSlots (*slotsOf)(int32_t r, int32_t p)) {
  Result<Program> order = emptyOrderSnake(problem, family, 2);
  if (!order)
    return order;
  const int32_t m = problem.numMicrobatches, p = problem.numRanks;
  if (p > kMostRanks)
    return refuse(family, std::to_string(p) +
                              " ranks are too many for it; "
                              "give at most " +
                              std::to_string(kMostRanks));
  Grid grid(p, m, slotsOf);
  grid.squeeze();
  grid.reorder();
  constexpr Op kOps[] = {Op::Forward,        Op::Forward,
                         Op::BackwardInput,  Op::BackwardInput,
                         Op::BackwardWeight, Op::BackwardWeight};
  for (int32_t r = 0; r < p; ++r) {
    auto &list = order->ranks[problem.placement[r]].instructions;
    list.reserve(kNumKinds * static_cast<size_t>(m) + 1); // and a step
    grid.forEach(r, [&](Kind kind, int32_t mb) {
      const bool back = kind == F1 || kind == I1 || kind == W1;
      list.push_back(action(kOps[kind], back ? 2 * p - 1 - r : r, mb));
    });
  }
  return order;
}

} // namespace penstock
