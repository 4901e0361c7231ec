//===- TorchCsvTest.cpp - The grammar of torch's schedule files -----------===//

#include "penstock/Import/TorchCsv.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace penstock;

namespace {

TorchTable read(const std::string &text,
                TorchPlacement placement = TorchPlacement::Rows) {
  Result<TorchTable> table = readTorchCsv(text, placement);
  EXPECT_TRUE(table) << table.message();
  return table ? *table : TorchTable();
}

std::string faultOf(const std::string &text,
                    TorchPlacement placement = TorchPlacement::Rows) {
  const Result<TorchTable> table = readTorchCsv(text, placement);
  return table ? "" : table.message();
}

/// What is wrong with a cell that stands alone.
std::string faultOfCell(const std::string &cell) {
  const std::string place =
      "line 1, column 1 (rank 0, cell 0): `" + cell + "` ";
  const std::string fault = faultOf(cell + "\n");
  return fault.starts_with(place) ? fault.substr(place.size()) : "?" + fault;
}

/// "forward 0 mb 1" and so on; a joined action is marked.
std::vector<std::string> described(const Program &program, int32_t rank) {
  std::vector<std::string> list;
  for (const Instruction &inst : program.ranks[rank].instructions)
    list.push_back(std::string(inst.joined ? "+ " : "") + describe(inst));
  return list;
}

using Strings = std::vector<std::string>;

TEST(TorchCsv, ComputeOnly) {
  const TorchTable table = read("0F0,0F1,,0B0,0B1\r\n\"\"\n,1F0, 1I0 ,1W0\t,"
                                "1F1,1B1,,\n");
  EXPECT_EQ(table.format, TorchFormat::ComputeOnly);
  EXPECT_EQ(name(table.format), "compute_only");
  EXPECT_TRUE(table.program.isOrder());
  EXPECT_TRUE(wellFormed(table.program));
  const Problem &problem = table.program.problem;
  EXPECT_EQ(problem.numRanks, 3);
  EXPECT_EQ(problem.numMicrobatches, 2);
  EXPECT_EQ(problem.placement, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(described(table.program, 0),
            (Strings{"forward 0 mb 0", "forward 0 mb 1", "backward 0 mb 0",
                     "backward 0 mb 1"}));
  EXPECT_EQ(described(table.program, 1), Strings{});
  EXPECT_EQ(
      described(table.program, 2),
      (Strings{"forward 1 mb 0", "backward_input 1 mb 0",
               "backward_weight 1 mb 0", "forward 1 mb 1", "backward 1 mb 1"}));
  EXPECT_EQ(table.cells[0], (std::vector<uint32_t>{0, 1, 3, 4}));
  EXPECT_EQ(table.cells[2], (std::vector<uint32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(describeCell(table, {2, 1}), "rank 2, cell 2 (1I0)");
  EXPECT_EQ(describeCell(table, {1, kNoInstruction}), "rank 1");
  // The last line may lack its line end, a cell may be quoted.
  EXPECT_EQ(read("\"0F0\",0B0").program, read("0F0,0B0\n").program);
}

TEST(TorchCsv, Containers) {
  const TorchTable table =
      read("0F0,(0F1;1B0)OVERLAP_F_B, ( 0B0 ; 1F1 )OVERLAP_F_B\n");
  EXPECT_EQ(table.format, TorchFormat::ComputeOnly);
  EXPECT_EQ(described(table.program, 0),
            (Strings{"forward 0 mb 0", "forward 0 mb 1", "+ backward 1 mb 0",
                     "backward 0 mb 0", "+ forward 1 mb 1"}));
  EXPECT_EQ(table.cells[0], (std::vector<uint32_t>{0, 1, 1, 2, 2}));
  EXPECT_EQ(describeCell(table, {0, 2}),
            "rank 0, cell 1 ((0F1;1B0)OVERLAP_F_B)");
  EXPECT_EQ(torchCell(table.program, {0, 3}), "(0B0;1F1)OVERLAP_F_B");
}

TEST(TorchCsv, ComputeComms) {
  const std::string text =
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
      "1RECV_F0,1F0,1I0,1SEND_B0,1W0\n";
  const TorchTable table = read(text);
  EXPECT_EQ(table.format, TorchFormat::ComputeComms);
  EXPECT_EQ(name(table.format), "compute_comms");
  EXPECT_TRUE(wellFormed(table.program));
  // torch names a transfer by the stage at this end.
  EXPECT_EQ(
      described(table.program, 0),
      (Strings{"unshard 0", "forward 0 mb 0", "send activation 0 mb 0 to 1",
               "recv gradient 1 mb 0 from 1", "backward 0 mb 0",
               "reduce_grad 0", "reshard 0"}));
  EXPECT_EQ(described(table.program, 1),
            (Strings{"recv activation 0 mb 0 from 0", "forward 1 mb 0",
                     "backward_input 1 mb 0", "send gradient 1 mb 0 to 0",
                     "backward_weight 1 mb 0"}));
  std::string again;
  for (int32_t r = 0; r < 2; ++r) {
    const auto &insts = table.program.ranks[r].instructions;
    for (size_t i = 0; i < insts.size(); ++i)
      again += torchText(insts[i]) + (i + 1 < insts.size() ? ',' : '\n');
  }
  EXPECT_EQ(again, text);
  Instruction step;
  step.op = Op::Step;
  EXPECT_EQ(torchText(step), "");
}

TEST(TorchCsv, Placement) {
  // Six stages on three ranks, in a V.
  const std::string text = "0F0,5F0,5B0,0B0\n1F0,4F0,4B0,1B0\n2F0,3F0,3B0,2B0";
  auto places = [&](TorchPlacement placement) {
    return read(text, placement).program.problem.placement;
  };
  using Places = std::vector<int32_t>;
  EXPECT_EQ(places(TorchPlacement::Rows), (Places{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(places(TorchPlacement::V), (Places{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(places(TorchPlacement::Loop), (Places{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(faultOf("0F0,0B0\n\"\"", TorchPlacement::V),
            "placement v needs a multiple of 2 stages, the number of ranks; "
            "the rows have 1");
}

TEST(TorchCsv, MicrobatchesAreThoseOfStage0) {
  EXPECT_EQ(read("0F0,0F1,0B1,0B0").program.problem.numMicrobatches, 2);
  EXPECT_EQ(read("0F0,0B0,0B7").program.problem.numMicrobatches, 1);
  EXPECT_EQ(read("0B0,0B7").program.problem.numMicrobatches, 8);
  EXPECT_EQ(read("0UNSHARD").program.problem.numMicrobatches, 1);
}

TEST(TorchCsv, FaultsOfLines) {
  EXPECT_EQ(faultOf("\xef\xbb\xbf"
                    "0F0"),
            "line 1: the file begins with a byte-order mark, which torch takes "
            "for a part of the first cell; save it as UTF-8 without one");
  for (const char *text : {"", "\n", " \r\n\t\n"})
    EXPECT_EQ(faultOf(text), "the file is empty; write one line for each rank, "
                             "such as 0F0,0F1,0B0,0B1");
  for (const char *text : {",,\n,", "\"\"\n\"\""})
    EXPECT_EQ(faultOf(text), "no cell has an action; write one line for each "
                             "rank, such as 0F0,0F1,0B0,0B1");
  for (const char *text : {"0F0\n1F0\n\n", "0F0\n1F0\n\r\n \n", "0F0\n1F0\n "})
    EXPECT_EQ(faultOf(text), "line 3: is a trailing blank line, which torch "
                             "counts as one more rank; delete it");
  EXPECT_EQ(faultOf("0F0\n  \n1F0"),
            "line 2: is blank, which torch counts as one more rank; delete it, "
            "or write \"\" for an idle rank");
  EXPECT_EQ(faultOf("0F0\r0B0\n"),
            "line 1: has a carriage return that no line feed follows; end "
            "lines with \\n or \\r\\n");
  std::string many;
  for (int32_t r = 0; r <= kMaxRanks; ++r)
    many += "0F0\n";
  EXPECT_EQ(faultOf(many), "line 1048577: there are more than 1048576 ranks; "
                           "write one line for each rank");
}

TEST(TorchCsv, PlacesOfFaults) {
  EXPECT_EQ(faultOf("0F0,0B0\r\n1F0, ,\"1B0\",2BW0,1B1\n").substr(0, 49),
            "line 2, column 13 (rank 1, cell 3): `2BW0` is the");
  EXPECT_EQ(faultOf("0F0,1UNSHARD,,0B0\n"),
            "line 1, column 14 (rank 0, cell 2): is an idle cell; a schedule "
            "with communication has none, and torch cannot run one. Delete it "
            "(a comma at the end of a line makes one too)");
  EXPECT_EQ(faultOf("0F0\n0SEND_F0\"").substr(0, 53),
            "line 2, column 1 (rank 1, cell 0): `0SEND_F0\"` has `\"");
  EXPECT_EQ(faultOf("0F0,0SEND_B0\n1F0"),
            "line 1, column 5 (rank 0, cell 1): `0SEND_B0` is a transfer with "
            "the stage before stage 0, which there is not; delete it");
  EXPECT_EQ(faultOf("0F0,0RECV_F0\n1F0").substr(35, 10), "`0RECV_F0`");
  EXPECT_EQ(faultOf("0F0\n1F0,1SEND_F0"),
            "line 2, column 5 (rank 1, cell 1): `1SEND_F0` is a transfer with "
            "the stage after the last one, stage 1; delete it");
  EXPECT_EQ(faultOf("0F0\n1F0,1RECV_B0").substr(35, 10), "`1RECV_B0`");
  EXPECT_EQ(faultOf("0F0\n2F0,2B0"),
            "line 2, column 1 (rank 1, cell 0): `2F0` leaves a gap: no row has "
            "stage 1; number stages from 0 on");
  EXPECT_EQ(faultOf("0F0\n1F0,900000F0"),
            "line 2, column 5 (rank 1, cell 1): `900000F0` leaves a gap: no "
            "row has stage 2; number stages from 0 on");
}

TEST(TorchCsv, FaultsOfQuotes) {
  EXPECT_EQ(faultOf("\"0F0,0B0\n"),
            "line 1, column 1 (rank 0, cell 0): `\"0F0,0B0` opens a quote and "
            "does not close it; no action needs quotes");
  EXPECT_EQ(faultOf("\"0F0\"x,0B0\n"),
            "line 1, column 1 (rank 0, cell 0): `\"0F0\"x` has text behind its "
            "quotes; no action needs quotes");
  // A quoted comma is a part of the cell.
  EXPECT_EQ(faultOf("\"0F0,0B0\"\n"),
            "line 1, column 1 (rank 0, cell 0): `0F0,0B0` has `,0B0` behind "
            "the action `0F0`, which torch ignores; delete it");
}

TEST(TorchCsv, FaultsOfCells) {
  EXPECT_EQ(faultOfCell("2BW0"),
            "is the full backward of files from 2024, which torch now reads as "
            "a B without a micro-batch. In such a file rename B to I, then BW "
            "to B");
  const std::string example =
      "; write stage, action and micro-batch, as in 0F3";
  for (const char *cell :
       {"0F", "0B", "0I", "0W", "0SEND_F", "0RECV_B", "0F x"})
    EXPECT_EQ(faultOfCell(cell), "has no micro-batch" + example);
  EXPECT_EQ(faultOfCell("0F0xyz"), "has `xyz` behind the action `0F0`, which "
                                   "torch ignores; delete it");
  EXPECT_EQ(faultOfCell("0F0 1"), "has ` 1` behind the action `0F0`, which "
                                  "torch ignores; delete it");
  EXPECT_EQ(faultOfCell("0F1.5"), "has `.5` behind the action `0F1`, which "
                                  "torch ignores; delete it");
  EXPECT_EQ(faultOfCell("0UNSHARD x"), "has ` x` behind the action `0UNSHARD`, "
                                       "which torch ignores; delete it");
  EXPECT_EQ(faultOfCell("-1F0"), "has a negative stage; stages count from 0");
  EXPECT_EQ(faultOfCell("0F-1"),
            "has a negative micro-batch; they count from 0");
  for (const char *cell : {"F0", "x", "F", "+0F0", ";"})
    EXPECT_EQ(faultOfCell(cell), "does not begin with a stage" + example);
  for (const char *cell : {"1UNSHARD5", "1RESHARD5", "1REDUCE_GRAD5"}) {
    const std::string word(cell, strlen(cell) - 1);
    EXPECT_EQ(faultOfCell(cell),
              "has a micro-batch, but it is for all of them; write " + word);
  }
  const std::string known =
      "; there are F, I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, "
      "RESHARD, REDUCE_GRAD";
  EXPECT_EQ(faultOfCell("0"), "has no action that torch knows" + known);
  EXPECT_EQ(faultOfCell("0f0"), "has no action that torch knows" + known);
  EXPECT_EQ(faultOfCell("0R0"), "has no action that torch knows: `R`" + known);
  EXPECT_EQ(faultOfCell("0SEND0"),
            "has no action that torch knows: `SEND`" + known);
  EXPECT_EQ(faultOfCell("0WAIT_SEND_F0"),
            "is proposed for torch and not in it; delete it");
  EXPECT_EQ(faultOfCell("0OVERLAP_F_B"),
            "is an overlap of nothing; write (0F1;1B0)OVERLAP_F_B");
  EXPECT_EQ(faultOfCell("1048576F0"),
            "names stage 1048576; the largest that can be is 1048575");
  EXPECT_EQ(faultOfCell("99999999999999999999F0"),
            "names stage 99999999999999999999; the largest that can be is "
            "1048575");
  EXPECT_EQ(faultOfCell("0F1073741824"),
            "names micro-batch 1073741824; the largest that can be is "
            "1073741823");
}

TEST(TorchCsv, FaultsOfContainers) {
  EXPECT_EQ(faultOfCell("(0F0;1B0"), "opens a parenthesis and does not close "
                                     "it; write (0F1;1B0)OVERLAP_F_B");
  const std::string only = " behind the parenthesis; the only container is "
                           "(0F1;1B0)OVERLAP_F_B, without a blank";
  EXPECT_EQ(faultOfCell("(0F0;1B0)"), "has nothing" + only);
  EXPECT_EQ(faultOfCell("(0F0;1B0) OVERLAP_F_B"), "has ` OVERLAP_F_B`" + only);
  EXPECT_EQ(faultOfCell("(0F0;1B0)F"), "has `F`" + only);
  EXPECT_EQ(faultOfCell("((0F0;1B0)OVERLAP_F_B;2B0)OVERLAP_F_B"),
            "has a container inside a container; torch has none, join them "
            "into one");
  for (const char *cell :
       {"()OVERLAP_F_B", "(0F0;)OVERLAP_F_B", "(0F0; ;1B0)OVERLAP_F_B"})
    EXPECT_EQ(faultOfCell(cell),
              "has an empty part; write its actions with one `;` between two, "
              "as in (0F1;1B0)OVERLAP_F_B");
  EXPECT_EQ(faultOfCell("(0F0;1SEND_B0)OVERLAP_F_B"),
            "has the part `1SEND_B0`, which does not compute; an overlap joins "
            "F, I, W and B");
  EXPECT_EQ(faultOfCell("(0F0;1B)OVERLAP_F_B"),
            "has the part `1B`, which has no micro-batch; write stage, action "
            "and micro-batch, as in 0F3");
  std::string many = "(0F0";
  for (int i = 0; i < 1024; ++i)
    many += ";0F0";
  EXPECT_EQ(faultOf(many + ")OVERLAP_F_B"),
            "line 1, column 1 (rank 0, cell 0): "
            "`(0F0;0F0;0F0;0F0;0F0;0F0;0F0;0F0;0F0;0F0...` has more than 1024 "
            "parts; torch makes containers of two");
}

TEST(TorchCsv, StrangeTextInMessages) {
  EXPECT_EQ(faultOf("0F0\x01\xff"),
            "line 1, column 1 (rank 0, cell 0): `0F0\\x01\\xFF` has "
            "`\\x01\\xFF` behind the action `0F0`, which torch ignores; delete "
            "it");
  EXPECT_EQ(faultOf(std::string("0F0\0,", 5)).substr(35, 9), "`0F0\\x00`");
}

/// Queue and communicator of the transfers of a rank.
std::vector<std::pair<int, int>> fifosOf(const Program &program, int32_t rank) {
  std::vector<std::pair<int, int>> list;
  for (const Instruction &inst : program.ranks[rank].instructions) {
    if (isTransfer(inst.op))
      list.push_back({inst.queue, inst.comm});
    else
      EXPECT_EQ(inst.queue, 0);
  }
  return list;
}

TEST(TorchCsv, Fifos) {
  EXPECT_EQ(name(Fifo::Rank), "rank");
  EXPECT_EQ(name(Fifo::Pair), "pair");
  EXPECT_EQ(name(Fifo::Edge), "edge");
  // Rank 1 talks with both neighbours in both directions.
  Program program = read("0F0,0SEND_F0,0RECV_B0,0B0\n"
                         "1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0\n"
                         "2RECV_F0,2F0,2B0,2SEND_B0\n")
                        .program;
  using List = std::vector<std::pair<int, int>>;
  ASSERT_TRUE(setFifos(program, Fifo::Rank));
  EXPECT_EQ(fifosOf(program, 1), (List{{1, 0}, {1, 0}, {1, 0}, {1, 0}}));
  ASSERT_TRUE(setFifos(program, Fifo::Pair));
  EXPECT_EQ(fifosOf(program, 0), (List{{1, 0}, {1, 0}}));
  EXPECT_EQ(fifosOf(program, 1), (List{{1, 0}, {2, 1}, {2, 1}, {1, 0}}));
  EXPECT_EQ(fifosOf(program, 2), (List{{1, 1}, {1, 1}}));
  ASSERT_TRUE(setFifos(program, Fifo::Edge));
  EXPECT_EQ(fifosOf(program, 0), (List{{1, 0}, {2, 1}}));
  EXPECT_EQ(fifosOf(program, 1), (List{{1, 0}, {2, 2}, {3, 3}, {4, 1}}));
  EXPECT_EQ(fifosOf(program, 2), (List{{1, 2}, {2, 3}}));
  EXPECT_TRUE(wellFormed(program));

  // A compute waits for what it receives, a transfer for the computes before.
  auto waits = [&](int32_t rank, uint32_t i) {
    const RankProgram &r = program.ranks[rank];
    const Instruction &inst = r.instructions[i];
    return std::vector<uint32_t>(r.waits.begin() + inst.firstWait,
                                 r.waits.begin() + inst.firstWait +
                                     inst.numWaits);
  };
  using Waits = std::vector<uint32_t>;
  EXPECT_EQ(waits(1, 0), Waits{});
  EXPECT_EQ(waits(1, 1), Waits{0});
  EXPECT_EQ(waits(1, 2), Waits{1});
  EXPECT_EQ(waits(1, 3), Waits{1});
  EXPECT_EQ(waits(1, 4), (Waits{0, 3}));
  EXPECT_EQ(waits(1, 5), Waits{4});

  // The parts of an overlap wait as one.
  program = read("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n"
                 "1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,"
                 "1SEND_B1")
                .program;
  ASSERT_TRUE(setFifos(program, Fifo::Rank));
  EXPECT_TRUE(wellFormed(program));
  EXPECT_EQ(waits(1, 3), (Waits{2, 0}));
  EXPECT_EQ(waits(1, 4), Waits{});
  EXPECT_EQ(waits(1, 5), Waits{4});
  EXPECT_TRUE(verify(program).accepted());
}

TEST(TorchCsv, TooManyFifos) {
  // Rank 0 has every even stage, every other rank one odd stage.
  std::string first, others;
  for (int s = 0; s < 260; s += 2) {
    const std::string even = std::to_string(s), odd = std::to_string(s + 1);
    first += even + "SEND_F0," + even + "RECV_B0,";
    others += odd + "RECV_F0," + odd + "SEND_B0\n";
  }
  first.back() = '\n';
  Program program = read(first + others).program;
  EXPECT_TRUE(setFifos(program, Fifo::Rank));
  EXPECT_TRUE(setFifos(program, Fifo::Pair));
  const Status status = setFifos(program, Fifo::Edge);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.failure().site, (Site{0, kNoInstruction}));
  EXPECT_EQ(status.message(),
            "has more FIFOs than the 255 of a rank or the 65536 communicators "
            "of a program that can be numbered; check it with one FIFO per "
            "rank");
}

TEST(TorchCsv, Warnings) {
  EXPECT_TRUE(torchWarnings(read("0F0,0B0")).empty());
  EXPECT_TRUE(torchWarnings(read("0F0,0B0,0REDUCE_GRAD")).empty());
  const std::vector<Finding> warnings = torchWarnings(read("0UNSHARD,0F0,0B0"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].site, Site());
  EXPECT_EQ(warnings[0].message,
            "no cell is a REDUCE_GRAD: torch then neither scales the gradients "
            "nor reduces them with FSDP. Put one after the last backward of "
            "each stage");
}

TEST(TorchCsv, Words) {
  EXPECT_EQ(inTorchWords("rank 0 waits in `send activation 0 mb 1 to 1`, which "
                         "waits for rank 1's `recv activation 0 mb 1 from 0`"),
            "rank 0 waits in `0SEND_F1`, which waits for rank 1's `1RECV_F1`");
  EXPECT_EQ(inTorchWords("`send gradient 1 mb 0 to 0` `recv gradient 1 mb 12 "
                         "from 1` `forward 0 mb 3` `backward_input 2 mb 3`"),
            "`1SEND_B0` `0RECV_B12` `0F3` `2I3`");
  EXPECT_EQ(inTorchWords("`unshard 3` `reduce_grad 1`"),
            "`3UNSHARD` `1REDUCE_GRAD`");
  // What torch has no word for, and what is no instruction.
  for (const char *text : {"", "no quotes", "`barrier` and `step 1`", "`2BW0`",
                           "`all_reduce 0`", "``", "` `"})
    EXPECT_EQ(inTorchWords(text), text);
}

} // namespace
