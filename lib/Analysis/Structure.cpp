//===- Structure.cpp - Every transfer has both ends, and they agree -------===//

#include "Describe.h"
#include "Rules.h"

#include "penstock/Program/Text.h"

#include <numeric>
#include <tuple>

using namespace penstock;

namespace {

class Structure {
public:
  Structure(const Program &program, const Channels &channels,
            Findings &findings)
      : program(program), problem(program.problem), channels(channels),
        findings(findings) {}

  void run() {
    for (int32_t r = 0; r < problem.numRanks && !findings.full(); ++r) {
      const auto &insts = program.ranks[r].instructions;
      for (uint32_t i = 0; i < insts.size() && !findings.full(); ++i)
        if (isTransfer(insts[i].op)) {
          checkTransfer({r, i});
          if (insts[i].joined && !insts[i - 1].joined)
            checkGroup(r, i - 1);
        } else if (movesToRank(insts[i])) {
          findings.add({r, i}, "belongs into an order; in a program a stash "
                               "moves by a send and a receive, so insert the "
                               "transfers");
        }
    }
    for (const Channel &channel : channels.channels)
      if (!findings.full())
        checkChannel(channel);
    for (const Meeting &meeting : channels.meetings)
      if (!findings.full())
        checkMeeting(meeting);
  }

private:
  const Instruction &at(Site site) const {
    return program.ranks[site.rank].instructions[site.instruction];
  }
  Site siteOf(uint32_t event, int32_t rank) const {
    return {rank, event - channels.base[rank]};
  }

  void checkTransfer(Site site) {
    const Instruction &inst = at(site);
    if (movesState(inst)) {
      checkState(site, inst);
      return;
    }
    checkWay(site, inst);
    const Tensor tensor = {kindOf(inst.payload), inst.stage, inst.microbatch};
    const int64_t bytes = bytesOf(problem, tensor);
    if (inst.bytes != bytes)
      findings.add(site, "moves " + std::to_string(inst.bytes) +
                             " bytes, but " + describe(tensor) + " has " +
                             std::to_string(bytes) +
                             " in the stage table; make them equal");
  }

  /// A state goes along the ranks, up or down.
  void checkState(Site site, const Instruction &inst) {
    if (std::abs(inst.peer - site.rank) != 1)
      findings.add(site, "goes between ranks " + std::to_string(site.rank) +
                             " and " + std::to_string(inst.peer) +
                             ", but a state goes from rank to rank, one after "
                             "the other; name a rank next to this one");
    const auto &insts = program.ranks[site.rank].instructions;
    if (inst.joined || itemEnd(insts, site.instruction) > site.instruction + 1)
      findings.add(site,
                   "is in a group, but states travel alone where the last "
                   "step is validated; take it out");
    if (inst.bytes != kStateBytes)
      findings.add(site, "moves " + std::to_string(inst.bytes) +
                             " bytes, but a state has " +
                             std::to_string(kStateBytes) + "; make them equal");
  }

  /// From the rank that makes a tensor to the one that reads it; a stash, from
  /// the rank of its stage to another and back.
  void checkWay(Site site, const Instruction &inst) {
    const bool isSend = inst.op == Op::Send;
    const int32_t producer = inst.stage;
    if (inst.payload == Payload::Stash) {
      const int32_t owner = problem.rankOf(producer, inst.microbatch);
      if (site.rank != owner && inst.peer != owner)
        findings.add(
            site,
            "goes from rank " + std::to_string(isSend ? site.rank : inst.peer) +
                " to rank " + std::to_string(isSend ? inst.peer : site.rank) +
                ", but stage " + std::to_string(producer) + " of micro-batch " +
                std::to_string(inst.microbatch) + " is on rank " +
                std::to_string(owner) +
                ", which gives its stash away and gets it back; "
                "make that one of the two ends");
      return;
    }
    const bool activation = inst.payload == Payload::Activation;
    const int32_t consumer = activation ? producer + 1 : producer - 1;
    if (consumer < 0 || consumer >= problem.numStages()) {
      findings.add(
          site,
          activation
              ? "stage " + std::to_string(producer) +
                    " is the last one, its activation goes nowhere; remove "
                    "the transfer"
              : "stage 0 sends no gradient, nothing comes before it; remove "
                "the transfer");
      return;
    }
    checkEnd(site, producer, isSend ? site.rank : inst.peer, "comes from");
    checkEnd(site, consumer, isSend ? inst.peer : site.rank, "goes to");
  }

  /// One end of a transfer is on the rank of the stage that it names.
  void checkEnd(Site site, int32_t stage, int32_t rank, const char *verb) {
    const int32_t owner = problem.rankOf(stage, at(site).microbatch);
    if (rank == owner)
      return;
    findings.add(site, std::string(verb) + " rank " + std::to_string(rank) +
                           ", but stage " + std::to_string(stage) +
                           " of micro-batch " +
                           std::to_string(at(site).microbatch) +
                           " is on rank " + std::to_string(owner) +
                           (rank == site.rank ? "; move the transfer there"
                                              : "; make that its peer"));
  }

  /// No tensor twice in one direction in one group.
  void checkGroup(int32_t rank, uint32_t first) {
    const auto &insts = program.ranks[rank].instructions;
    auto key = [&](uint32_t i) {
      const Instruction &inst = insts[i];
      return std::tuple(inst.op, inst.payload, inst.stage, inst.microbatch, i);
    };
    std::vector<uint32_t> members(itemEnd(insts, first) - first);
    std::iota(members.begin(), members.end(), first);
    std::sort(members.begin(), members.end(),
              [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    for (size_t k = 1; k < members.size(); ++k) {
      const Instruction &a = insts[members[k - 1]], &b = insts[members[k]];
      if (a.op == b.op && a.payload == b.payload && a.stage == b.stage &&
          a.microbatch == b.microbatch)
        findings.add({rank, members[k]},
                     "the group moves this tensor twice; remove one",
                     {{{rank, members[k - 1]}, "the other one is here"}});
    }
  }

  static bool sameTensor(const Instruction &a, const Instruction &b) {
    return a.payload == b.payload && a.stage == b.stage &&
           a.microbatch == b.microbatch;
  }

  /// First to first: what is sent arrives, in equal size, and nothing is left.
  void checkChannel(const Channel &channel) {
    auto send = [&](uint32_t k) {
      return siteOf(channels.send(channel, k), channel.source);
    };
    auto recv = [&](uint32_t k) {
      return siteOf(channels.recv(channel, k), channel.destination);
    };
    /// Whether the i-th send and the k-th receive exist and name one tensor.
    auto agree = [&](uint32_t i, uint32_t k) {
      return i < channel.numSends && k < channel.numRecvs &&
             sameTensor(at(send(i)), at(recv(k)));
    };
    const uint32_t numPairs = channel.numPairs();
    for (uint32_t k = 0; k < numPairs; ++k) {
      const Instruction &a = at(send(k)), &b = at(recv(k));
      if (agree(k, k)) {
        if (a.bytes != b.bytes)
          findings.add(send(k),
                       quoted(a) + " of " + std::to_string(a.bytes) +
                           " bytes arrives in rank " +
                           std::to_string(channel.destination) + "'s " +
                           quoted(b) + " of " + std::to_string(b.bytes) +
                           " bytes; make the sizes equal",
                       {{recv(k), "received here"}});
        if (a.bytes != b.bytes)
          return;
        continue;
      }
      const std::string lands = quoted(a) + " arrives in rank " +
                                std::to_string(channel.destination) + "'s " +
                                quoted(b);
      if (agree(k, k + 1) && agree(k + 1, k)) {
        findings.add(send(k),
                     lands + ", and " + quoted(program, send(k + 1)) +
                         " in its " + quoted(program, recv(k + 1)) +
                         ": the two are swapped, " + firstToFirst(channel) +
                         wayOut(channel, a, b),
                     {{recv(k), "received here"},
                      {send(k + 1), "the other one is sent here"},
                      {recv(k + 1), "and received here"}});
        ++k; // what follows fits again
        continue;
      }
      const bool extraSend =
          channel.numSends > channel.numRecvs && agree(k + 1, k);
      const bool extraRecv =
          channel.numRecvs > channel.numSends && agree(k, k + 1);
      if (extraSend || extraRecv) {
        findings.add(
            extraSend ? send(k) : recv(k),
            std::string("no ") + (extraSend ? "receive" : "send") +
                " on rank " +
                std::to_string(extraSend ? channel.destination
                                         : channel.source) +
                " is meant for this, so " + lands +
                ", and what follows is shifted too, " + firstToFirst(channel) +
                "; add the missing end or remove this one",
            {{extraSend ? recv(k) : send(k), "the other end is here"}});
        return;
      }
      findings.add(send(k),
                   lands + ", " + firstToFirst(channel) + wayOut(channel, a, b),
                   {{recv(k), "received here"}});
      return; // what follows on this channel is most likely shifted too
    }
    if (channel.numSends == channel.numRecvs)
      return;
    const bool extraSend = channel.numSends > channel.numRecvs;
    findings.add(extraSend ? send(numPairs) : recv(numPairs),
                 std::string("no ") + (extraSend ? "receive" : "send") +
                     " matches this: " + nameOf(channel) + " there are " +
                     std::to_string(channel.numSends) + " sends and " +
                     std::to_string(channel.numRecvs) +
                     " receives; add the missing end or remove this one");
  }
  static std::string nameOf(const Channel &channel) {
    return "from rank " + std::to_string(channel.source) + " to rank " +
           std::to_string(channel.destination) + " on communicator " +
           std::to_string(channel.comm);
  }
  static std::string firstToFirst(const Channel &channel) {
    return "because messages " + nameOf(channel) +
           " have no tags and match first to first";
  }
  /// What to do when `a` arrives in `b`.
  static std::string wayOut(const Channel &channel, const Instruction &a,
                            const Instruction &b) {
    if (a.payload == b.payload)
      return "; make the order equal at both ends";
    for (Payload payload : {Payload::State, Payload::Stash})
      if (a.payload == payload || b.payload == payload)
        return std::string("; make the order equal at both ends or give ") +
               (payload == Payload::State ? "states" : "stashes") +
               " a communicator of their own";
    return "; rank " + std::to_string(channel.destination) +
           " comes both after and before rank " +
           std::to_string(channel.source) +
           ", so make the order of activations and gradients equal at both "
           "ends or give gradients a communicator of their own";
  }

  void checkMeeting(const Meeting &meeting) {
    auto site = [&](uint32_t k) {
      return channels.site(channels.member(meeting, k));
    };
    const Site first = site(0);
    const Instruction &inst = at(first);
    if (meeting.complete) {
      for (uint32_t k = 1; k < meeting.count; ++k)
        if (at(site(k)).bytes != inst.bytes) {
          findings.add(first,
                       "moves " + std::to_string(inst.bytes) +
                           " bytes here and " +
                           std::to_string(at(site(k)).bytes) + " on rank " +
                           std::to_string(site(k).rank) + "; make them equal",
                       {{site(k), "the other size is here"}});
          break;
        }
      return;
    }
    // Members come in the order of their ranks: merge them with the set.
    uint32_t k = 0;
    for (size_t n = 0; n < rankSetSize(program, inst); ++n) {
      const int32_t rank = inst.peer < 0 ? static_cast<int32_t>(n)
                                         : program.rankSets[inst.peer][n];
      while (k < meeting.count && site(k).rank < rank)
        strangers(site(k++));
      if (k < meeting.count && site(k).rank == rank)
        ++k;
      else
        findings.add(first, "rank " + std::to_string(rank) +
                                " never reaches this collective, or less often "
                                "than rank " +
                                std::to_string(first.rank) +
                                " does; every rank of the set must issue it");
    }
    while (k < meeting.count)
      strangers(site(k++));
  }
  void strangers(Site site) {
    findings.add(site, "rank " + std::to_string(site.rank) +
                           " is not in the rank set of this collective; add it "
                           "to the set or remove the collective here");
  }

  const Program &program;
  const Problem &problem;
  const Channels &channels;
  Findings &findings;
};

} // namespace

void penstock::checkStructure(const Program &program, const Channels &channels,
                              Findings &findings) {
  Structure(program, channels, findings).run();
}
