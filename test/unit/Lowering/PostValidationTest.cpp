//===- PostValidationTest.cpp - States of batches go to the ranks ---------===//

#include "Orders.h"

#include "penstock/Analysis/Simulate.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

using namespace penstock;
using namespace penstock::test;

namespace {

Problem problemFor(const PlacedFamily &family, int32_t p, int32_t m) {
  Problem problem = family.shape == Shape::BothWays
                        ? pipeline(p, m, cost(1, 1, 1))
                        : loopedPipeline(p, family.chunks, m, cost(1, 1, 1));
  family.place(problem);
  problem.postValidation = true;
  return problem;
}

Program orderOf(const PlacedFamily &family, int32_t p, int32_t m) {
  Result<Program> order = family.make(problemFor(family, p, m));
  EXPECT_TRUE(order) << order.message();
  appendSteps(*order);
  return std::move(*order);
}

Program lower(Program order, TransferPlacement placement) {
  TransferOptions options;
  options.placement = placement;
  auto inserted = insertTransfers(order, options);
  EXPECT_TRUE(inserted) << inserted.message();
  auto planned = planBuffers(order);
  EXPECT_TRUE(planned) << planned.message();
  return order;
}

template <typename Fn>
void forEachSynchronousOrder(Fn &&fn) {
  std::vector<PlacedFamily> families = {kNaive, kGPipe, kOneForwardOneBackward};
  families.insert(families.end(), std::begin(kInOrder), std::end(kInOrder));
  families.insert(families.end(), std::begin(kInAnotherOrder),
                  std::end(kInAnotherOrder));
  for (const PlacedFamily &family : families)
    for (int32_t p : {1, 2, 3, 4, 6})
      for (int32_t m : {2, 6, 12}) {
        Problem problem = problemFor(family, p, m);
        if (!family.make(problem))
          continue; // too few micro-batches, an odd number of ranks
        SCOPED_TRACE(std::string(family.name) + " p=" + std::to_string(p) +
                     " m=" + std::to_string(m));
        fn(orderOf(family, p, m));
      }
}

std::string messagesOf(const Verdict &verdict) {
  std::string text;
  for (const Finding &finding : verdict.findings)
    text += std::string(name(finding.rule)) + ": " + finding.message + "\n";
  return text;
}

std::string listing(const RankProgram &rank) {
  std::string text;
  for (const Instruction &inst : rank.instructions)
    text += describe(inst) + "\n";
  return text;
}

} // namespace

TEST(PostValidation, StandsWhereItCostsNothing) {
  Program program = orderOf({"zb_h1", zbH1}, 2, 2);
  auto statistics = insertTransfers(program);
  ASSERT_TRUE(statistics) << statistics.message();
  EXPECT_EQ(statistics->transfers, 6);
  EXPECT_EQ(listing(program.ranks[0]), "forward 0 mb 0\n"
                                       "send activation 0 mb 0 to 1\n"
                                       "forward 0 mb 1\n"
                                       "recv state from 1\n"
                                       "send activation 0 mb 1 to 1\n"
                                       "recv gradient 1 mb 0 from 1\n"
                                       "validate\n"
                                       "backward_input 0 mb 0\n"
                                       "backward_weight 0 mb 0\n"
                                       "recv gradient 1 mb 1 from 1\n"
                                       "backward_input 0 mb 1\n"
                                       "backward_weight 0 mb 1\n"
                                       "reduce_state\n"
                                       "send state to 1\n"
                                       "step\n");
  EXPECT_EQ(listing(program.ranks[1]), "recv activation 0 mb 0 from 0\n"
                                       "forward 1 mb 0\n"
                                       "validate\n"
                                       "send state to 0\n"
                                       "recv activation 0 mb 1 from 0\n"
                                       "backward_input 1 mb 0\n"
                                       "send gradient 1 mb 0 to 0\n"
                                       "forward 1 mb 1\n"
                                       "backward_input 1 mb 1\n"
                                       "send gradient 1 mb 1 to 0\n"
                                       "backward_weight 1 mb 0\n"
                                       "backward_weight 1 mb 1\n"
                                       "recv state from 0\n"
                                       "reduce_state\n"
                                       "step\n");
}

TEST(PostValidation, EveryFamilyIsAccepted) {
  int count = 0;
  forEachSynchronousOrder([&](const Program &order) {
    EXPECT_TRUE(verify(order, {.order = true}).accepted());
    for (TransferPlacement placement :
         {TransferPlacement::Time, TransferPlacement::Torch}) {
      const Program program = lower(order, placement);
      const Verdict verdict = verify(program);
      ASSERT_TRUE(verdict.accepted()) << messagesOf(verdict) << dump(program);
      EXPECT_TRUE(verdict.serialisedOk);
    }
    ++count;
  });
  EXPECT_GT(count, 100);
}

/// Where transfers take time, too.
TEST(PostValidation, EveryFamilyIsAcceptedWithSlowTransfers) {
  forEachSynchronousOrder([&](Program order) {
    order.problem.link = {0.375, 64};
    const Program program = lower(order, TransferPlacement::Fastest);
    const Verdict verdict = verify(program);
    ASSERT_TRUE(verdict.accepted()) << messagesOf(verdict);
  });
}

/// Ranks in any order, costs of all kinds, many instants with several events.
TEST(PostValidation, AcceptedAndFreeWhateverTheCosts) {
  forEachOrder(5, 7, [&](Program order) {
    const auto isOnTheWay = [](const Instruction &inst) {
      return inst.op == Op::Step && inst.microbatch >= 0;
    };
    if (std::any_of(order.ranks[0].instructions.begin(),
                    order.ranks[0].instructions.end(), isOnTheWay))
      return;
    const auto before = simulateProgram(lower(order, TransferPlacement::Time));
    order.problem.postValidation = true;
    const Program program = lower(order, TransferPlacement::Time);
    const Verdict verdict = verify(program);
    ASSERT_TRUE(verdict.accepted()) << messagesOf(verdict) << dump(program);
    const auto with = simulateProgram(program);
    ASSERT_TRUE(before && with);
    EXPECT_EQ(with->makespan, before->makespan);
    EXPECT_TRUE(verify(lower(order, TransferPlacement::Torch)).accepted());
  });
}

/// Free transfers of states delay no action.
TEST(PostValidation, CostsNoTimeWhereTransfersAreFree) {
  forEachSynchronousOrder([&](const Program &order) {
    Program without = order;
    without.problem.postValidation = false;
    const auto before =
        simulateProgram(lower(without, TransferPlacement::Time));
    const auto with = simulateProgram(lower(order, TransferPlacement::Time));
    ASSERT_TRUE(before && with);
    EXPECT_EQ(with->makespan, before->makespan);
  });
}

/// What the runtime runs behind the last batch: a chain from the last rank to
/// the first.
TEST(PostValidation, TheLastValidationEndsToo) {
  forEachSynchronousOrder([&](const Program &order) {
    Program program = lower(order, TransferPlacement::Time);
    for (size_t r = 0; r < program.ranks.size(); ++r) {
      RankProgram &rank = program.ranks[r];
      const auto self = static_cast<int32_t>(r);
      std::erase_if(rank.instructions, [&](const Instruction &inst) {
        const bool goesDown = movesState(inst) &&
                              (inst.op == Op::Recv) == (inst.peer == self + 1);
        return inst.op != Op::Validate && !goesDown;
      });
      rank.waits.clear();
      for (Instruction &inst : rank.instructions)
        inst.numWaits = inst.firstWait = 0;
      EXPECT_EQ(rank.instructions.size(),
                1u + (r > 0) + (r + 1 < program.ranks.size()));
    }
    program.rankSets.clear();
    EXPECT_TRUE(checkDeadlock(program, Semantics::Closure).ok);
    EXPECT_TRUE(
        checkDeadlock(program, Semantics(Semantics::Documented, 0, true)).ok);
  });
}

TEST(PostValidation, RefusesStepsOnTheWay) {
  Problem problem = pipeline(2, 4);
  problem.postValidation = true;
  Result<Program> order = pipeDream(problem);
  ASSERT_TRUE(order);
  const std::string message =
      "is for one micro-batch, but post-validation is of one step for the "
      "whole batch; choose a schedule with a flush, or drop post_validation";
  const Verdict verdict = verify(*order, {.order = true});
  ASSERT_EQ(verdict.findings.size(), 1u) << messagesOf(verdict);
  EXPECT_EQ(verdict.findings[0].rule, Rule::Completeness);
  EXPECT_EQ(verdict.findings[0].message, message);
  auto inserted = insertTransfers(*order);
  ASSERT_FALSE(inserted);
  EXPECT_EQ(inserted.message(), "`step 0 mb 0` " + message);
}

TEST(PostValidation, NeedsAStep) {
  Problem problem = pipeline(2, 4);
  problem.postValidation = true;
  Result<Program> order = gpipe(problem);
  ASSERT_TRUE(order);
  const std::string message = "there is no `step` that post-validation could "
                              "be of; add steps, or drop post_validation";
  const Verdict verdict = verify(*order, {.order = true});
  ASSERT_EQ(verdict.findings.size(), 1u) << messagesOf(verdict);
  EXPECT_EQ(verdict.findings[0].message, message);
  EXPECT_EQ(insertTransfers(*order).message(), message);

  Instruction step;
  step.op = Op::Step;
  auto &list = order->ranks[1].instructions;
  list.insert(list.begin(), step);
  EXPECT_EQ(insertTransfers(*order).message(),
            "`step` stands before the last action of rank 1, but it needs to "
            "know all gradients of the rank; put the step there");
}

TEST(PostValidation, StatesDoNotBelongIntoOrders) {
  Program order = orderOf(kGPipe, 2, 2);
  Instruction validate;
  validate.op = Op::Validate;
  order.ranks[1].instructions.push_back(validate);
  EXPECT_FALSE(order.isOrder());
  const Verdict verdict = verify(order, {.order = true});
  ASSERT_FALSE(verdict.accepted());
  EXPECT_EQ(verdict.findings[0].site, (Site{1, 5}));
  EXPECT_FALSE(insertTransfers(order));
}

//===----------------------------------------------------------------------===//
// What the verifier refuses
//===----------------------------------------------------------------------===//

namespace {

/// Rank 1 of three in 1F1B: F F, then the validation, and all else.
class RefusesStates : public testing::Test {
protected:
  void SetUp() override {
    program = orderOf(kOneForwardOneBackward, 3, 4);
    ASSERT_TRUE(insertTransfers(program));
    ASSERT_TRUE(verify(program).accepted());
  }
  std::vector<Instruction> &list() { return program.ranks[1].instructions; }
  uint32_t find(const std::string &text) {
    for (uint32_t i = 0; i < list().size(); ++i)
      if (describe(list()[i]) == text)
        return i;
    ADD_FAILURE() << text << " is not in\n" << listing(program.ranks[1]);
    return 0;
  }
  void drop(const std::string &text) {
    list().erase(list().begin() + find(text));
  }
  /// Moves an instruction in front of another.
  void put(const std::string &text, const std::string &before) {
    const Instruction inst = list()[find(text)];
    drop(text);
    list().insert(list().begin() + find(before), inst);
  }
  void expectRefused(uint32_t instruction, const std::string &message,
                     Rule rule = Rule::Completeness) {
    const Verdict verdict = verify(program);
    EXPECT_TRUE(std::any_of(verdict.findings.begin(), verdict.findings.end(),
                            [&](const Finding &finding) {
                              return finding.rule == rule &&
                                     finding.message == message &&
                                     finding.site == Site{1, instruction};
                            }))
        << "no: " << instruction << " " << message << "\nbut:\n"
        << messagesOf(verdict);
  }

  Program program;
};

} // namespace

TEST_F(RefusesStates, Missing) {
  const std::pair<const char *, const char *> cases[] = {
      {"recv state from 2", "the state of the batch before comes from the last "
                            "rank"},
      {"validate",
       "the rank has to look whether its step of the batch before was right"},
      {"send state to 0",
       "the state of the batch before goes on to the first rank"},
      {"recv state from 0", "the state of the batch comes from the first rank"},
      {"reduce_state",
       "the rank has to add its gradients to the state of the batch"},
      {"send state to 2", "the state of the batch goes on to the last rank"},
  };
  const Program right = program;
  for (auto [text, why] : cases) {
    program = right;
    drop(text);
    expectRefused(kNoInstruction, "`" + std::string(text) +
                                      "` is missing on rank 1: " + why +
                                      "; add it");
  }
}

TEST_F(RefusesStates, Twice) {
  for (const char *text : {"validate", "reduce_state"}) {
    const uint32_t at = find(text);
    list().insert(list().begin() + at, list()[at]);
    expectRefused(at + 1, "is here a second time; remove one");
  }
}

TEST_F(RefusesStates, OutOfOrder) {
  const std::string order =
      "; a rank receives the state of the batch before from the next rank, "
      "validates its step, sends it to the previous rank, receives that of the "
      "batch from there, adds to it and sends it to the next rank, in this "
      "order, so put it after that";
  const Program right = program;
  const char *const chain[] = {"recv state from 2", "validate",
                               "send state to 0",   "recv state from 0",
                               "reduce_state",      "send state to 2"};
  for (size_t k = 1; k < std::size(chain); ++k) {
    program = right;
    put(chain[k], chain[k - 1]);
    expectRefused(find(chain[k]),
                  "stands before `" + std::string(chain[k - 1]) + "`" + order);
  }
}

TEST_F(RefusesStates, ValidationTooLate) {
  put("recv state from 2", "backward 1 mb 1");
  put("validate", "backward 1 mb 1");
  put("send state to 0", "backward 1 mb 1");
  expectRefused(find("validate"),
                "stands after `backward 1 mb 0`; before it there may be only "
                "forwards of stage 1, with which the rank begins, so put it "
                "before that");
}

TEST_F(RefusesStates, ReductionTooEarly) {
  put("recv state from 0", "backward 1 mb 3");
  put("reduce_state", "backward 1 mb 3");
  expectRefused(find("reduce_state"),
                "stands before `backward 1 mb 3`, which changes the gradients "
                "that it looks at; put it after that");
}

TEST_F(RefusesStates, StepTooEarly) {
  put("step", "reduce_state");
  expectRefused(find("step"), "stands before `reduce_state`, which tells it "
                              "whether it may change the parameters; put it "
                              "after that");
}

TEST_F(RefusesStates, InTheWayOfAGradient) {
  put("send state to 0", "send gradient 1 mb 1 to 0");
  const Verdict verdict = verify(program);
  ASSERT_FALSE(verdict.accepted());
  EXPECT_NE(messagesOf(verdict).find(
                "`send gradient 1 mb 0 to 0` arrives in rank 0's `recv state "
                "from 1`"),
            std::string::npos)
      << messagesOf(verdict);
  EXPECT_NE(messagesOf(verdict).find("give states a communicator of their own"),
            std::string::npos)
      << messagesOf(verdict);
}

TEST_F(RefusesStates, WrongWay) {
  program = orderOf(kOneForwardOneBackward, 4, 4);
  ASSERT_TRUE(insertTransfers(program));
  const uint32_t at = find("send state to 2");
  list()[at].peer = 3;
  expectRefused(at,
                "goes between ranks 1 and 3, but a state goes from rank to "
                "rank, one after the other; name a rank next to this one",
                Rule::Structure);
}

TEST_F(RefusesStates, WrongSize) {
  const uint32_t at = find("send state to 2");
  list()[at].bytes = 8;
  expectRefused(at, "moves 8 bytes, but a state has 16; make them equal",
                Rule::Structure);
}

TEST_F(RefusesStates, InAGroup) {
  for (bool first : {false, true}) {
    SetUp();
    const uint32_t at = find("send state to 2");
    Instruction other = list()[at];
    other.peer = 0;
    list().insert(list().begin() + at + !first, other);
    list()[at + 1].joined = true;
    expectRefused(at + first,
                  "is in a group, but states travel alone where the "
                  "last step is validated; take it out",
                  Rule::Structure);
  }
}

TEST_F(RefusesStates, WithoutTheClause) {
  program.problem.postValidation = false;
  const std::string message =
      "is there for post-validation, which the schedule does not have; add "
      "post_validation to it, or remove this";
  const Program with = program;
  for (const char *text : {"send state to 0", "validate", "reduce_state"}) {
    program = with;
    const Instruction inst = list()[find(text)];
    for (RankProgram &rank : program.ranks)
      std::erase_if(rank.instructions, [](const Instruction &i) {
        return usesState(i.op) || movesState(i);
      });
    ASSERT_TRUE(verify(program).accepted());
    list().insert(list().begin(), inst);
    expectRefused(0, message, Rule::Structure);
  }
}

/// On the queues of a plan every use of a state is ordered by waits.
TEST_F(RefusesStates, Unordered) {
  ASSERT_TRUE(planBuffers(program));
  auto dropWaits = [&](const std::string &text) {
    RankProgram &rank = program.ranks[1];
    Instruction &inst = rank.instructions[find(text)];
    ASSERT_GT(inst.numWaits, 0);
    rank.waits.erase(rank.waits.begin() + inst.firstWait,
                     rank.waits.begin() + inst.firstWait + inst.numWaits);
    const uint32_t gone = inst.numWaits;
    for (Instruction &other : rank.instructions)
      if (&other > &inst && other.numWaits > 0)
        other.firstWait -= gone;
    inst.numWaits = inst.firstWait = 0;
  };
  const Program right = program;
  const std::tuple<const char *, const char *> cases[] = {
      {"validate",
       "uses the state of a batch on queue 0, not ordered after `recv state "
       "from 2` on queue 1, which writes the state; let it wait for that"},
      {"reduce_state",
       "adds to the state of the batch on queue 0, not ordered after `recv "
       "state from 0` on queue 1, which writes the state; let it wait for "
       "that"},
      {"send state to 2",
       "uses the state of a batch on queue 1, not ordered after `reduce_state` "
       "on queue 0, which writes the state; let it wait for that"},
  };
  for (auto [text, message] : cases) {
    program = right;
    dropWaits(text);
    expectRefused(find(text), message, Rule::DataFlow);
  }
}
