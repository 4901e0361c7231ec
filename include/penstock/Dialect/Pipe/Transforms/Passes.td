//===- Passes.td - Passes of the pipe dialect --------------*- tablegen -*-===//
//
// The way from a spec to a program, and the two passes that judge what comes
// out. Each pass is thin: it extracts the flat program, calls one algorithm, and
// writes back or reports. docs/Passes.md is generated from this file.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_TRANSFORMS_PASSES_TD
#define PENSTOCK_DIALECT_PIPE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def PartitionLayers : Pass<"pipe-partition-layers", "::mlir::ModuleOp"> {
  let summary = "Cut the model into stages and place them on ranks";
  let description = [{
    Resolves what a spec refers to and writes it down as `stage` ops.

    With a model, its layers are cut into as many contiguous stages as the
    schedule family wants (ranks times chunks), so that the rank with the most
    expensive stages, and then the most expensive stage, is as cheap as possible;
    the cost of a layer is that of its forward and backward. Where the order of the family would then need more memory than a
    rank has, the layers are cut so that it fits, if that is found possible. A
    stage costs the sum of its layers and puts out what its last layer puts out.
    Without a model, all stages cost what `costs` says. Ranks,
    memory and link come from the cluster, if there is one. The family places the
    stages.

    Before: a spec; `model` and `cluster` name ops of the module.
    After: every schedule has `ranks`, `microbatches` and one `stage` op per
    stage, and refers to nothing outside itself. A schedule that has stages
    already keeps them.

    The options override every schedule of the module; so one spec serves many
    trials. `schedule` also replaces an order written by hand.

    ```mlir
    pipe.schedule @train ranks(2) microbatches(4) using(#pipe.one_f_one_b)
    // becomes
    pipe.schedule @train ranks(2) microbatches(4) using(#pipe.one_f_one_b) {
      stage 0 on 0
      stage 1 on 1
    }
    ```
  }];
  let options = [
    Option<"schedule", "schedule", "std::string", /*default=*/"",
           "Family to use instead of the schedule's own, as in "
           "`one_f_one_b` or `one_f_one_b<split_backward=true>`">,
    Option<"microbatches", "microbatches", "::penstock::pipe::OptionalCount",
           /*default=*/"",
           "Number of micro-batches instead of the schedule's own">,
    Option<"ranks", "ranks", "::penstock::pipe::OptionalCount",
           /*default=*/"",
           "Number of ranks instead of the schedule's or cluster's own">,
  ];
  let statistics = [
    Statistic<"numStages", "stages", "Number of stages written">,
  ];
  let dependentDialects = ["::penstock::pipe::PipeDialect"];
}

def GenerateOrder
    : Pass<"pipe-generate-order", "::penstock::pipe::ScheduleOp"> {
  let summary = "Write every rank's actions in the order of the family";
  let description = [{
    Before: a schedule with stages and a family (`using`), or with `rank` ops.
    After: a schedule with one `rank` op per rank, which holds its actions in
    order and ends with the optimizer `step`.

    An order written by hand is kept; it gets its `step` only, and
    `split-backward` where that is asked for.

    ```mlir
    rank 1 {
      forward 1 mb 0
      backward 1 mb 0
      forward 1 mb 1
      backward 1 mb 1
      step
    }
    ```
  }];
  let options = [
    Option<"splitBackward", "split-backward", "bool", /*default=*/"false",
           "Replace every backward by backward_input and backward_weight">,
  ];
  let statistics = [
    Statistic<"numActions", "actions", "Number of actions in orders">,
  ];
  let dependentDialects = ["::penstock::pipe::PipeDialect"];
}

def InsertTransfers
    : Pass<"pipe-insert-transfers", "::penstock::pipe::ScheduleOp"> {
  let summary = "Insert the sends and receives that an order needs";
  let description = [{
    All transfers of the schedule are put in one global order, by the time at
    which their producers end when transfers are free, and each rank sends and
    receives in that order: a send right after its producer, a receive before
    the action that runs at that time. The result cannot deadlock, and free
    transfers cost no time. Opposite transfers that are neighbours on both of
    their ranks become one group.

    Before: an order.
    After: a complete program; all its transfers stand on queue 0, so that each
    rank runs strictly in host order.

    A schedule that has transfers or collectives is a complete program already
    and is left alone.

    With `placement=torch` transfers stand where torch's pipelining puts them,
    ungrouped: for those who must match it, or want to know what it costs. The
    gathering and dropping of sharded parameters, three stages at a time, and
    the reduction of gradients shift them there, so they count, but are not
    inserted. By default that is done too where transfers take time and the
    program ends earlier with it.
  }];
  let options = [
    Option<"group", "group", "bool", /*default=*/"true",
           "Group opposite transfers of a pair of ranks">,
    Option<"placement", "placement", "::penstock::TransferPlacement",
           /*default=*/"::penstock::TransferPlacement::Fastest",
           "Where transfers stand",
           [{::llvm::cl::values(
             clEnumValN(::penstock::TransferPlacement::Fastest, "fastest",
                        "by time, or as torch where that ends earlier"),
             clEnumValN(::penstock::TransferPlacement::Time, "time",
                        "by the time at which their payloads are there"),
             clEnumValN(::penstock::TransferPlacement::Torch, "torch",
                        "where torch's pipelining puts them"))}]>,
  ];
  let statistics = [
    Statistic<"numTransfers", "transfers", "Number of transfers inserted">,
    Statistic<"numGroups", "groups", "Number of groups formed">,
    Statistic<"numComplete", "complete",
              "Number of schedules that had their transfers already">,
  ];
  let dependentDialects = ["::penstock::pipe::PipeDialect"];
}

def PlanBuffers : Pass<"pipe-plan-buffers", "::penstock::pipe::ScheduleOp"> {
  let summary = "Give every tensor a slot and every queue its waits";
  let description = [{
    Before: a complete program.
    After: a planned program: every tensor of a rank has one of the rank's
    slots, transfers stand on their own queue, and each instruction names the
    instructions of other queues that it waits for. Nothing is implicit any
    more. Stashes that are offloaded have slots in host memory as well, and are
    copied on a queue behind that of the transfers.

    Slots and waits that were there are planned anew; a `queue` written by hand
    stays.

    ```mlir
    rank 1 slots(2 x 1024, 1 x 4096) {
      recv activation 0 mb 0 from 0 slot(0) bytes(1024) queue(1)
      forward 1 mb 0 in(0) stash(2) after(recv activation 0 mb 0 from 0)
    ```
  }];
  let options = [
    Option<"transferQueue", "transfer-queue", "unsigned", /*default=*/"1",
           "Queue for the transfers that stand on queue 0; 0 leaves them there">,
  ];
  let statistics = [
    Statistic<"numSlots", "slots", "Number of slots over all ranks">,
    Statistic<"arenaBytes", "arena-bytes", "Bytes of all slots">,
    Statistic<"hostBytes", "host-bytes", "Bytes of all slots in host memory">,
    Statistic<"numWaits", "waits", "Number of waits between queues">,
  ];
  let dependentDialects = ["::penstock::pipe::PipeDialect"];
}

def RepairDeadlock
    : Pass<"pipe-repair-deadlock", "::penstock::pipe::ScheduleOp"> {
  let summary = "Mend deadlocks by grouping and moving transfers";
  let description = [{
    Before: a complete program.
    After: a program that ends under closure semantics and computes and moves
    the same. Where a cycle of waits is found, transfers are grouped, moved past
    what they do not depend on, or taken out of a group; each repair is checked
    by the verifier before it counts, and told in a remark. A program without a
    deadlock is left alone.

    The pass fails when no repair is known: then it tells the deadlock that is
    left, and the schedule stays as it was. It moves no actions, and it gives no
    schedule a better order: that is for `pipe-insert-transfers`.

    ```mlir
    send activation 0 mb 1 to 1
    recv gradient 1 mb 0 from 1
    // becomes, and likewise on rank 1
    group {
      send activation 0 mb 1 to 1
      recv gradient 1 mb 0 from 1
    }
    ```
  }];
  let statistics = [
    Statistic<"numRepairs", "repairs", "Number of repairs applied">,
  ];
  let dependentDialects = ["::penstock::pipe::PipeDialect"];
}

def VerifySchedule : Pass<"pipe-verify"> {
  let summary = "Prove a schedule right, or say why it is not";
  let description = [{
    Checks structure, completeness, data flow, deadlock freedom and memory of an
    order or a program from any source, and trusts no pass. Every finding is an
    error at the op at fault; notes at the ops that it involves explain it, for a
    deadlock the whole cycle of waits. An order is checked as an order: its
    transfers are implied. On an op that holds schedules it checks all of them.

    Before and after: the same schedule. The pass fails when there is a finding.
    It needs `rank` ops: a bare spec has nothing to verify yet.

    It does not promise that the costs are true, nor that a schedule is fast,
    nor that an order has the shape its family's name claims.
  }];
  let statistics = [
    Statistic<"numFindings", "findings", "Number of faults found">,
    Statistic<"numInstructions", "instructions",
              "Number of instructions checked">,
  ];
}

def SimulateSchedule
    : Pass<"pipe-simulate", "::penstock::pipe::ScheduleOp"> {
  let summary = "Predict time and memory, as a remark";
  let description = [{
    Emits one remark per schedule with its makespan, span, bubble rate, the peak
    over ranks and what the critical path goes to. A program is timed with its
    queues as they are, an order with transfers that are pure latency.
    `penstock-translate --pipe-to-report` gives the same figures, and more, as
    JSON.

    Before and after: the same schedule. The pass fails when the schedule cannot
    run.
  }];
}

#endif // PENSTOCK_DIALECT_PIPE_TRANSFORMS_PASSES_TD
