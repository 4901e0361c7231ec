//===- TorchCsv.h - Schedules of torch.distributed.pipelining ---*- C++ -*-===//
//
// Reads and writes the two CSV formats of torch's pipeline schedules: one line
// a rank, one cell an action such as `0F3`. compute_only is an order;
// compute_comms has the sends and receives too and is a program, which runs on
// queues that torch's communicators determine. docs/import.md has the grammar.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_IMPORT_TORCHCSV_H
#define PENSTOCK_IMPORT_TORCHCSV_H

#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Result.h"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class TorchFormat : uint8_t { ComputeOnly, ComputeComms };
/// "compute_only", "compute_comms"
std::string_view name(TorchFormat format);

/// Which rank has which stage.
enum class TorchPlacement : uint8_t {
  Rows, ///< the rank in whose row the stage is first
  Loop, ///< stage s on rank s mod p
  V     ///< to and fro: 0 1 2 2 1 0 0 1 2
};

/// A schedule file, read.
struct TorchTable {
  TorchFormat format = TorchFormat::ComputeOnly;
  /// An order, or a program that runs in the order of its rows: all on queue 0,
  /// one communicator; see setFifos(). It has as many micro-batches as stage 0
  /// has forwards of. Cells that go beyond, or send to their own rank, make it
  /// not well-formed; the verifier says so.
  Program program;
  /// cells[rank][i]: position of instruction i in its row, idle cells counted.
  std::vector<std::vector<uint32_t>> cells;
};

/// Reads a schedule file; the cells say which format it is. Strict: what torch
/// would read as something else than it says is a failure that names line,
/// column and what to write instead.
Result<TorchTable>
readTorchCsv(std::string_view text,
             TorchPlacement placement = TorchPlacement::Rows);

/// What torch issues transfers into, each such FIFO with one queue on each side
/// and one communicator.
enum class Fifo : uint8_t {
  Rank, ///< one for each rank: an eager NCCL communicator
  Pair, ///< one for each two ranks: lazy NCCL communicators
  Edge  ///< one for each two ranks and direction: per-edge communicators
};
/// "rank", "pair", "edge"
std::string_view name(Fifo fifo);

/// Gives the instructions of a well-formed program without a plan the queues,
/// communicators and waits that they have in torch: an action waits for what it
/// receives, a transfer for all earlier actions of its rank. Fails where a rank
/// has more FIFOs than a program has queues or communicators.
Status setFifos(Program &program, Fifo fifo);

/// `0F3`, `1SEND_B0`, `2REDUCE_GRAD`; empty where torch has no such action.
std::string torchText(const Instruction &inst);
/// The cell of an action, with all that is joined to it: `0F3` or
/// `(0F1;1B0)OVERLAP_F_B`.
std::string torchCell(const Program &program, Site site);
/// "rank 1, cell 4 (1SEND_F0)"
std::string describeCell(const TorchTable &table, Site site);

/// The text with every quoted instruction, such as `send activation 0 mb 1 to
/// 1`, as the action that it is in torch: `0SEND_F1`.
std::string inTorchWords(std::string_view text);

/// What the verifier does not know and torch does not say: gradients that are
/// never reduced.
std::vector<Finding> torchWarnings(const TorchTable &table);

struct TorchCsvOptions {
  static constexpr int32_t kAll = 0, kByRank = -1;
  /// Into a program without `unshard` and `reshard` these are inserted so that
  /// before each action the next so many stages that the rank uses are
  /// gathered, and all others dropped: torch's max_active_stages.
  int32_t activeStages = 3;
  /// How many of them are gathered ahead: all, min(rank + 2, activeStages) with
  /// kByRank, or this many. torch's unshard_lookahead.
  int32_t lookahead = kAll;
  /// Idle cells of an order: of each rank, in front of each instruction and
  /// behind the last. None: no idle cells.
  std::vector<std::vector<uint32_t>> idleCells;
};

/// The file of an order (compute_only) or of a program (compute_comms), with LF
/// line ends. Members of a group become cells in an order that is equal on both
/// sides; `unshard`, `reshard` and `reduce_grad` are inserted into a program
/// that has none of them; `step` is left to the user's loop. The program must
/// be well-formed.
Result<std::string> writeTorchCsv(const Program &program,
                                  const TorchCsvOptions &options);
Result<std::string> writeTorchCsv(const Program &program);

} // namespace penstock

#endif // PENSTOCK_IMPORT_TORCHCSV_H
