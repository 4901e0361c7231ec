//===- Simulate.cpp - When everything happens -----------------------------===//

#include "penstock/Analysis/Simulate.h"

#include "HostOrder.h"
#include "penstock/Analysis/EventGraph.h"
#include "penstock/Analysis/LiveRanges.h"
#include "penstock/Analysis/RunOrder.h"
#include "penstock/Program/Text.h"
#include "penstock/Support/Memory.h"

#include <unordered_map>

namespace penstock {

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

Status checkActions(const Program &order) {
  const Problem &problem = order.problem;
  const OrderIndex index(problem);
  // Of the first n + 1 actions that there must be, n cannot hold all: the table
  // need not be larger, however many a problem claims.
  std::vector<uint8_t> seen(std::min(index.size(), order.numInstructions() + 1),
                            0);
  for (size_t rank = 0; rank < order.ranks.size(); ++rank) {
    const auto &list = order.ranks[rank].instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      const Instruction &inst = list[i];
      if (!isAction(inst.op))
        continue;
      const Site site{static_cast<int32_t>(rank), static_cast<uint32_t>(i)};
      auto refuse = [&](const std::string &why) {
        return Failure{quoted(inst) + ' ' + why, site};
      };
      if (!isInRange(problem, inst))
        return refuse("is out of range; there are " +
                      std::to_string(index.stages) + " stages and " +
                      std::to_string(index.microbatches) + " micro-batches");
      const int32_t owner = problem.rankOf(inst.stage, inst.microbatch);
      if (owner != site.rank)
        return refuse("stands on rank " + std::to_string(rank) +
                      ", but its stage is on rank " + std::to_string(owner) +
                      "; move the action or the stage");
      const size_t position = index.of(inst);
      if (position >= seen.size())
        continue;
      if (seen[position])
        return refuse("is there a second time; remove one");
      seen[position] = 1;
    }
  }
  const auto missing = static_cast<size_t>(
      std::find(seen.begin(), seen.end(), 0) - seen.begin());
  if (missing == index.size())
    return success();
  Instruction inst;
  const size_t row = missing / index.microbatches;
  inst.op = row < index.stages ? Op::Forward : Op::Backward;
  inst.stage = static_cast<int32_t>(row % index.stages);
  inst.microbatch = static_cast<int32_t>(missing % index.microbatches);
  const int32_t owner = problem.rankOf(inst.stage, inst.microbatch);
  return Failure{quoted(inst) + " is missing; add it to rank " +
                     std::to_string(owner),
                 {owner, kNoInstruction}};
}

Status checkMoves(const Program &order) {
  const Problem &problem = order.problem;
  auto moves = [](const Instruction &inst) {
    return inst.op == Op::Offload || inst.op == Op::Reload;
  };
  const bool any = std::any_of(
      order.ranks.begin(), order.ranks.end(), [&](const RankProgram &rank) {
        return std::any_of(rank.instructions.begin(), rank.instructions.end(),
                           moves);
      });
  if (!any)
    return success();
  // Where the stash of (stage, mb) is: on a rank, in host memory, between I and
  // W on its rank or in host memory, or none of these.
  constexpr int32_t kHost = -1, kInUse = -2, kInUseInHost = -3, kNotYet = -4,
                    kUsed = -5;
  const OrderIndex index(problem);
  std::vector<int32_t> place(index.stages * index.microbatches, kNotYet);
  for (size_t r = 0; r < order.ranks.size(); ++r) {
    const auto rank = static_cast<int32_t>(r);
    const auto &list = order.ranks[r].instructions;
    for (uint32_t i = 0; i < list.size(); ++i) {
      const Instruction &inst = list[i];
      if (!isAction(inst.op) && !moves(inst))
        continue;
      auto refuse = [&](const std::string &why) {
        return Failure{why, {rank, i}};
      };
      auto stash = [&] {
        return describe(Tensor{TensorKind::Stash, inst.stage, inst.microbatch});
      };
      const int32_t owner = problem.rankOf(inst.stage, inst.microbatch);
      int32_t &at = place[index.forward(inst.stage, inst.microbatch)];
      if (owner != rank)
        return refuse("is on the wrong rank: stage " +
                      std::to_string(inst.stage) + " of micro-batch " +
                      std::to_string(inst.microbatch) + " is on rank " +
                      std::to_string(owner) + "; move it there");
      const bool isInHost = at == kHost || at == kInUseInHost;
      if (isAction(inst.op) ? readsStash(inst.op) && isInHost
                            : inst.op == Op::Offload && isInHost)
        return refuse((isAction(inst.op) ? "needs " : "moves ") + stash() +
                      ", which is in host memory; reload it before");
      if (at >= 0 && at != rank && inst.op != Op::Reload)
        return refuse((inst.op == Op::Offload ? "moves " : "needs ") + stash() +
                      ", which rank " + std::to_string(at) +
                      " holds; reload it from there before");
      if (inst.op == Op::Forward || inst.op == Op::Recompute) {
        at = rank;
      } else if (isAction(inst.op)) {
        at = inst.op == Op::BackwardInput ? kInUse : kUsed;
      } else if (inst.op == Op::Reload && inst.peer < 0) {
        if (!isInHost)
          return refuse("gets back " + stash() +
                        ", which is not in host memory; offload it first, or "
                        "remove this");
        at = at == kHost ? rank : kInUse;
      } else if (inst.op == Op::Offload && inst.peer < 0 && at == kInUse) {
        at = kInUseInHost;
      } else if (inst.op == Op::Reload) {
        if (at != inst.peer)
          return refuse(
              "gets back " + stash() + ", which rank " +
              std::to_string(inst.peer) + " does not hold" +
              (at >= 0 && at != rank
                   ? "; rank " + std::to_string(at) + " does, so name that"
                   : "; offload it there first, or remove this"));
        at = rank;
      } else if (at != rank) {
        return refuse("moves " + stash() +
                      (at == kNotYet ? ", which is not there yet; put it after "
                                       "the forward"
                                     : ", which the backward has used already; "
                                       "put it before that"));
      } else {
        at = inst.peer;
      }
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// What both simulations report
//===----------------------------------------------------------------------===//

/// A stash that a rank holds for another one.
struct Guest {
  uint32_t first, end; ///< instructions of the rank meanwhile
  int32_t stage;
};

/// A transfer of a stash on the rank that holds it for another one.
static bool movesGuest(const Problem &problem, size_t rank,
                       const Instruction &inst) {
  return isTransfer(inst.op) && inst.payload == Payload::Stash &&
         problem.rankOf(inst.stage, inst.microbatch) !=
             static_cast<int32_t>(rank);
}

/// Where the moves of own stashes, `moves` of the list of a rank, count by time
/// among its actions: for each the first action, or the end of the list, that
/// finds the stash gone, or there again. It is gone when the move has ended,
/// and has its place again when the move starts.
static std::vector<uint32_t> placesOf(std::span<const Instruction> list,
                                      std::span<const Site> moves,
                                      std::span<const double> start,
                                      std::span<const double> end) {
  std::vector<uint32_t> items;
  for (uint32_t i = 0; i < list.size() && !moves.empty(); ++i)
    if (isAction(list[i].op) && !list[i].joined)
      items.push_back(i);
  std::vector<uint32_t> places;
  std::unordered_map<uint64_t, uint32_t> gone; // by stash
  for (Site move : moves) {
    const uint32_t i = move.instruction;
    const uint64_t stash =
        (static_cast<uint64_t>(list[i].stage) << 32) | list[i].microbatch;
    auto first = [&](auto from, auto &&finds) {
      auto at = std::partition_point(
          from, items.end(), [&](uint32_t item) { return !finds(item); });
      return at == items.end() ? static_cast<uint32_t>(list.size()) : *at;
    };
    const uint32_t behind =
        first(std::upper_bound(items.begin(), items.end(), i),
              [&](uint32_t item) { return start[item] >= end[i]; });
    places.push_back(
        takesStash(list[i])
            ? behind
            // Not before it is gone, which the same action may see.
            : std::max(gone[stash],
                       std::min(behind, first(items.begin(), [&](uint32_t at) {
                                  return end[at] > start[i];
                                }))));
    if (takesStash(list[i]))
      gone[stash] = places.back();
  }
  return places;
}

/// The first of `size` places that is behind another: from there on all are.
/// Quick if it is near `guess`.
template <typename Fn>
static uint32_t firstBehind(uint32_t size, uint32_t guess, Fn &&isBehind) {
  uint32_t begin = std::min(guess, size), end = begin; // it is in [begin, end]
  for (uint32_t step = 1; begin > 0 && isBehind(begin - 1); step *= 2) {
    end = begin - 1;
    begin -= std::min(begin, step);
  }
  for (uint32_t step = 1; end < size && !isBehind(end); step *= 2) {
    begin = end + 1;
    end += std::min(size - end, step);
  }
  while (begin < end) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (isBehind(middle))
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

/// When a stash leaves the rank of its stage, or comes back to it.
struct MoveTime {
  Site site;
  double start, end;
};

/// Of an order, or of a program as one, by rank; `moves` are of each rank in
/// its order. One that comes or goes while an action runs counts until the end
/// of that, or from its start.
static std::vector<std::vector<Guest>>
guestsOf(const Program &order, const Timing &timing,
         const std::vector<MoveTime> &moves) {
  std::vector<std::vector<Guest>> guests(order.ranks.size());
  if (moves.empty())
    return guests;
  const OrderIndex index(order.problem);
  // Of each stash the move with which it left.
  constexpr uint32_t kNone = ~0u;
  BigArray<uint32_t> left(index.stages * index.microbatches, kNone);
  for (uint32_t number = 0; number < moves.size(); ++number) {
    const auto [r, i] = moves[number].site;
    const Instruction &inst = order.ranks[r].instructions[i];
    uint32_t &leave = left[index.forward(inst.stage, inst.microbatch)];
    if (inst.op == Op::Offload || inst.op == Op::Send) {
      leave = number;
      continue;
    }
    if (movesToHost(inst))
      continue;
    const auto &list = order.ranks[inst.peer].instructions;
    if (leave == kNone || list.empty())
      continue;
    auto last = static_cast<uint32_t>(list.size() - 1);
    while (last > 0 && !isAction(list[last].op))
      --last;
    const std::span starts = timing.start[inst.peer],
                    ends = timing.end[inst.peer];
    const double since = moves[leave].start, until = moves[number].end;
    const auto size = static_cast<uint32_t>(list.size());
    // Ranks have come about as far at one time.
    auto near = [&, own = order.ranks[r].instructions.size()](uint64_t at) {
      return static_cast<uint32_t>(at * size / own);
    };
    const uint32_t first = std::min(
        last, firstBehind(size, near(moves[leave].site.instruction),
                          [&](uint32_t at) { return ends[at] > since; }));
    const uint32_t end = firstBehind(
        size, near(i), [&](uint32_t at) { return starts[at] >= until; });
    guests[inst.peer].push_back({first, std::max(end, first + 1), inst.stage});
  }
  return guests;
}

/// Fills in the times of a rank, and the largest number of stage activations
/// alive at once. In an order guests count by time.
static void measureRank(const Program &program, size_t r,
                        const std::vector<Guest> &guests,
                        std::span<const Site> moves,
                        std::span<const uint32_t> places, Timing &timing) {
  const std::span list = program.ranks[r].instructions;
  RankTiming &rank = timing.ranks[r];
  std::vector<uint8_t> byTime(moves.empty() ? 0 : list.size(), 0);
  auto counts = [&](uint32_t i) {
    return (!timing.ofOrder || !movesGuest(program.problem, r, list[i])) &&
           (byTime.empty() || !byTime[i]);
  };
  std::vector<int32_t> change(
      guests.empty() && moves.empty() ? 0 : list.size() + 1, 0);
  for (size_t k = 0; k < moves.size(); ++k) {
    const uint32_t i = moves[k].instruction;
    byTime[i] = 1;
    change[places[k]] += takesStash(list[i]) ? -1 : 1;
  }
  for (const Guest &guest : guests) {
    ++change[guest.first];
    --change[guest.end];
  }
  const std::vector<uint8_t> dropped = droppedStashes(program.problem, list);
  int64_t alive = 0;
  bool any = false;
  for (uint32_t begin = 0, end = 0; begin < list.size(); begin = end) {
    end = itemEnd(list, begin);
    for (uint32_t i = begin; i < end; ++i) {
      alive += bringsStash(list[i]) && counts(i);
      if (!change.empty())
        alive += change[i];
    }
    rank.peakActivations = std::max(rank.peakActivations, alive);
    for (uint32_t i = begin; i < end; ++i)
      alive -= (takesStash(list[i]) && counts(i)) ||
               (!dropped.empty() && dropped[i]);
    if (!isAction(list[begin].op))
      continue;
    rank.busy +=
        durationOfItem(program.problem, list.subspan(begin, end - begin));
    const double start = timing.start[r][begin];
    rank.start = any ? std::min(rank.start, start) : start;
    rank.end = std::max(rank.end, timing.end[r][begin]);
    any = true;
  }
}

/// The most bytes of stashes in host memory, which come and go in the order of
/// the copies.
static int64_t hostBytesOf(const Program &program, size_t r,
                           std::span<const Site> moves) {
  int64_t bytes = 0, peak = 0;
  for (Site move : moves) {
    const Instruction &inst = program.ranks[r].instructions[move.instruction];
    if (!movesToHost(inst))
      continue;
    const int64_t size = bytesOf(
        program.problem, {TensorKind::Stash, inst.stage, inst.microbatch});
    bytes += inst.op == Op::Offload ? size : -size;
    peak = std::max(peak, bytes);
  }
  return peak;
}

/// Fills in everything that follows from the start and end of the instructions.
/// `guests` are those of an order, by rank, or none; `moves` the copies to host
/// memory and back, ascending.
static void summarize(const Program &program,
                      const std::vector<std::vector<Guest>> &guests,
                      std::span<const Site> moves, Timing &timing) {
  const Problem &problem = program.problem;
  const bool order = timing.ofOrder, planned = program.isPlanned();
  const std::vector<int64_t> persistent = persistentBytes(problem);
  LiveRangeFinder finder(problem, order ? LiveRangeFinder::Stashes
                                        : LiveRangeFinder::All);
  timing.ranks.assign(program.ranks.size(), {});
  double busiest = 0;
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const auto &list = program.ranks[r].instructions;
    RankTiming &rank = timing.ranks[r];
    size_t numOwn = 0;
    while (numOwn < moves.size() &&
           moves[numOwn].rank == static_cast<int32_t>(r))
      ++numOwn;
    const std::span own = moves.first(numOwn);
    moves = moves.subspan(numOwn);
    const std::vector<uint32_t> places =
        placesOf(list, own, timing.start[r], timing.end[r]);
    measureRank(program, r, guests[r], own, places, timing);
    busiest = std::max(busiest, rank.busy);
    timing.makespan = std::max(timing.makespan, rank.end);
    timing.span = std::max(timing.span, rank.end - rank.start);

    const WeightVersions versions =
        weightVersions(program, static_cast<int32_t>(r));
    rank.peakVersions = versions.peak();
    if (!versions.ranges.empty())
      rank.versionBytes =
          peakOf(problem, list.size(), {}, versions.ranges).bytes;
    if (planned && !order) {
      rank.peakBytes = persistent[r] + rank.versionBytes +
                       slotOffsets(program.ranks[r]).back();
      rank.peakHostBytes = slotOffsets(program.ranks[r].hostSlotBytes).back();
      continue;
    }
    rank.peakHostBytes = hostBytesOf(program, r, own);
    std::vector<int32_t> skipped, moved; // live ranges
    auto &ranges =
        finder.run(list, [&](uint32_t i, const Access &access, int32_t range) {
          if (order && access.mode == Access::Write &&
              movesGuest(problem, r, list[i]))
            skipped.push_back(range);
          if (moved.size() < own.size() && own[moved.size()].instruction == i)
            moved.push_back(range);
        });
    for (size_t k = 0; k < moved.size(); ++k) {
      if (moved[k] == kNoSlot)
        continue;
      LiveRange &range = ranges[moved[k]];
      if (takesStash(list[own[k].instruction]))
        range.end = std::max(range.end, places[k]);
      else
        range.first = places[k];
      range.end = std::max(range.first, range.end);
    }
    for (int32_t range : skipped)
      ranges[range].end = ranges[range].first;
    for (const Guest &guest : guests[r])
      ranges.push_back({TensorKind::Stash, guest.stage, guest.first,
                        guest.first, guest.end});
    rank.peakBytes =
        persistent[r] +
        peakOf(problem, list.size(), ranges, versions.ranges).bytes;
  }
  if (timing.span > 0)
    timing.bubbleRate = (timing.span - busiest) / timing.span;
}

static void sortSites(std::vector<Site> &sites) {
  std::sort(sites.begin(), sites.end(), [](Site a, Site b) {
    return std::pair(a.rank, a.instruction) < std::pair(b.rank, b.instruction);
  });
}

static Timing makeTiming(const Program &program) {
  Timing timing;
  timing.start = InstructionTimes(program);
  timing.end = InstructionTimes(program);
  return timing;
}

std::optional<Timing> simulateOrder(const Program &program) {
  const Problem &problem = program.problem;
  Timing timing = makeTiming(program);
  timing.ofOrder = true;
  std::vector<MoveTime> moves;
  // What stands before an item and is none starts and ends with the one before.
  std::vector<PlayedItem<double>> last(program.ranks.size());
  auto fillUntil = [&](size_t rank, uint32_t begin) {
    for (uint32_t i = last[rank].end; i < begin; ++i)
      timing.start[rank][i] = timing.end[rank][i] = last[rank].endTime;
  };
  Status played = playOrderByRank<double>(
      program,
      [&](const Instruction &inst) { return durationOf(problem, inst); },
      [&](int32_t from, const Instruction &inst) {
        return handOverTime(problem, from, inst);
      },
      [&](const PlayedItem<double> &item) {
        prefetch(&timing.start[item.rank][item.begin], 16 * sizeof(double));
        prefetch(&timing.end[item.rank][item.begin], 16 * sizeof(double));
        fillUntil(item.rank, item.begin);
        for (uint32_t i = item.begin; i < item.end; ++i) {
          timing.start[item.rank][i] = item.startTime;
          timing.end[item.rank][i] = item.endTime;
        }
        last[item.rank] = item;
      },
      [&](Site site, double start, double end) {
        moves.push_back({site, start, end});
      });
  if (!played)
    return std::nullopt;
  for (size_t r = 0; r < program.ranks.size(); ++r)
    fillUntil(r, static_cast<uint32_t>(timing.end[r].size()));
  const auto guests = guestsOf(program, timing, moves);
  for (const auto &[site, start, end] : moves) {
    timing.start[site.rank][site.instruction] = start;
    timing.end[site.rank][site.instruction] = end;
    timing.moves.push_back(site);
  }
  sortSites(timing.moves);
  // To another rank a stash goes where the list says so: in the program the
  // next one waits for its place.
  std::vector<Site> copies;
  std::copy_if(timing.moves.begin(), timing.moves.end(),
               std::back_inserter(copies), [&](Site site) {
                 return movesToHost(
                     program.ranks[site.rank].instructions[site.instruction]);
               });
  summarize(program, guests, copies, timing);
  return timing;
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

namespace {
/// Runs the steps of a program one after the other. What an item comes directly
/// after (see Items.h) has run before it: the last item on its queue, the last
/// one on each of its communicators, and the ones that it waits for.
class Player {
public:
  explicit Player(const Program &program);

  /// False if that gets stuck. Before an item come the items of its rank that
  /// stand before it, which are local.
  bool runInHostOrder(const Channels &channels);
  void run(const EventGraph &graph, const std::vector<uint32_t> &steps);

  Timing finish() { return std::move(timing); }

private:
  /// One rank, as far as it has come.
  struct Clock {
    uint32_t next = 0; ///< in host order, the item to run
    std::array<double, 256> queueEnd{};
    std::vector<uint16_t> comms; ///< that the rank uses, ascending
    std::vector<double> commEnd; ///< of each

    double &endOn(uint16_t comm) {
      const auto at = std::lower_bound(comms.begin(), comms.end(), comm);
      return commEnd[at - comms.begin()];
    }
  };

  /// One step. `forEachMember(fn)` calls fn(Site) for its instructions.
  template <typename ForEachMember>
  void play(ForEachMember &&forEachMember);
  void playLocal(int32_t rank, uint32_t until);

  const Program &program;
  Timing timing;
  std::vector<Clock> clocks; ///< of each rank
};
} // namespace

Player::Player(const Program &program)
    : program(program), timing(makeTiming(program)),
      clocks(program.ranks.size()) {
  std::vector<bool> used(1 << 16);
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    std::vector<uint16_t> &comms = clocks[r].comms;
    for (const Instruction &inst : program.ranks[r].instructions)
      if (usesComm(inst.op) && !used[inst.comm]) {
        used[inst.comm] = true;
        comms.push_back(inst.comm);
      }
    std::sort(comms.begin(), comms.end());
    clocks[r].commEnd.resize(comms.size());
    for (uint16_t comm : comms)
      used[comm] = false;
  }
}

template <typename ForEachMember>
void Player::play(ForEachMember &&forEachMember) {
  double start = 0, length = 0, longest = 0;
  forEachMember([&](Site site) {
    Clock &clock = clocks[site.rank];
    const RankProgram &rank = program.ranks[site.rank];
    const Instruction &inst = rank.instructions[site.instruction];
    prefetch(&inst, 8 * sizeof(Instruction));
    prefetch(&timing.start[site.rank][site.instruction], 16 * sizeof(double));
    prefetch(&timing.end[site.rank][site.instruction], 16 * sizeof(double));
    start = std::max(start, clock.queueEnd[inst.queue]);
    if (usesComm(inst.op))
      start = std::max(start, clock.endOn(inst.comm));
    for (uint32_t w = 0; w < inst.numWaits; ++w)
      start = std::max(start,
                       timing.end[site.rank][rank.waits[inst.firstWait + w]]);
    const double duration = durationOf(program.problem, inst);
    longest = std::max(longest, duration);
    length = isTransfer(inst.op) ? longest : length + duration;
  });
  const double end = start + program.problem.together(length, longest);
  forEachMember([&](Site site) {
    Clock &clock = clocks[site.rank];
    const Instruction &inst =
        program.ranks[site.rank].instructions[site.instruction];
    clock.queueEnd[inst.queue] = end;
    if (usesComm(inst.op))
      clock.endOn(inst.comm) = end;
    timing.start[site.rank][site.instruction] = start;
    timing.end[site.rank][site.instruction] = end;
    if (movesToHost(inst))
      timing.moves.push_back(site);
  });
}

void Player::playLocal(int32_t rank, uint32_t until) {
  const auto &list = program.ranks[rank].instructions;
  for (uint32_t begin = clocks[rank].next, end; begin < until; begin = end) {
    end = itemEnd(list, begin);
    play([&](auto &&fn) {
      for (uint32_t i = begin; i < end; ++i)
        fn(Site{rank, i});
    });
  }
  clocks[rank].next = until;
}

bool Player::runInHostOrder(const Channels &channels) {
  auto visit = [&](std::span<const HostStepMember> members) {
    auto forEachItem = [&](auto &&fn) {
      for (const HostStepMember &member : members) {
        const uint32_t begin =
            channels.users[member.user] - channels.base[member.rank];
        fn(member.rank, begin,
           itemEnd(program.ranks[member.rank].instructions, begin));
      }
    };
    forEachItem([&](int32_t rank, uint32_t begin, uint32_t end) {
      playLocal(rank, begin);
      clocks[rank].next = end;
    });
    play([&](auto &&fn) {
      forEachItem([&](int32_t rank, uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; ++i)
          fn(Site{rank, i});
      });
    });
  };
  if (!runsInHostOrder(channels, visit))
    return false;
  for (size_t r = 0; r < program.ranks.size(); ++r)
    playLocal(static_cast<int32_t>(r),
              static_cast<uint32_t>(program.ranks[r].instructions.size()));
  return true;
}

void Player::run(const EventGraph &graph, const std::vector<uint32_t> &steps) {
  for (uint32_t step : steps)
    play([&](auto &&fn) { graph.forEachMember(step, fn); });
}

std::optional<Timing> playProgram(const Program &program) {
  if (Player player(program); player.runInHostOrder(Channels(program)))
    return player.finish();
  const EventGraph graph(program, Semantics::Closure);
  const std::vector<uint32_t> steps = graph.topologicalOrder();
  if (steps.size() < graph.numSteps())
    return std::nullopt;
  Player player(program);
  player.run(graph, steps);
  return player.finish();
}

std::optional<Timing> simulateProgram(const Program &program) {
  std::optional<Timing> timing = playProgram(program);
  if (timing) {
    sortSites(timing->moves);
    summarize(program, std::vector<std::vector<Guest>>(program.ranks.size()),
              std::vector(timing->moves), *timing);
  }
  return timing;
}

} // namespace penstock
