//===- PipeDialect.td - The pipe dialect -------------------*- tablegen -*-===//
//
// The dialect itself. Include order, each file including the ones before it:
//
//   PipeDialect.td       dialect
//   PipeProperties.td    properties of ops
//   PipeInterfaces.td    schedule families, instructions
//   PipeAttrs.td         costs, sizes, links, families
//   PipeOpBase.td        base classes of ops
//   PipeSpecOps.td       model, cluster, schedule, stage
//   PipeProgramOps.td    rank and what stands in it (beside PipeSpecOps.td)
//   PipeOps.td           all ops
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEDIALECT_TD
#define PENSTOCK_DIALECT_PIPE_IR_PIPEDIALECT_TD

include "mlir/IR/DialectBase.td"

def Pipe_Dialect : Dialect {
  let name = "pipe";
  let cppNamespace = "::penstock::pipe";
  let summary = "Pipeline-parallel schedules, from a short spec to programs";
  let description = [{
    A schedule says which rank does which action on which stage and micro-batch,
    and in what order. The dialect writes it down on three levels, in one op,
    `pipe.schedule`:

    - *spec*: stages, ranks, micro-batches, costs and a schedule family;
    - *order*: `rank` ops that list the actions of each rank;
    - *program*: the same with transfers, and, once planned, with slots, queues
      and waits.

    Operations name stages, micro-batches, ranks, slots and queues by number.
    There are no SSA values: the order of the ops is their meaning, and a
    million of them must print and parse in about a second. For the same reason
    an op's verifier looks at this op alone; whether a whole program is right is
    for the pass `pipe-verify` to say.

    An instruction starts with what it is (`send activation 0 mb 1 to 1`); its
    clauses, in any order and each at most once, plan it:

    | clause | on | meaning |
    | --- | --- | --- |
    | `in(s)` | actions | slot of the activation that the stage reads |
    | `grad(s)` | actions | slot of the gradient that a backward reads |
    | `out(s)` | actions | slot of the activation or gradient that it writes |
    | `stash(s)` | actions | slot of what the forward keeps for the backward |
    | `slot(s)` | transfers | slot that is sent, or received into |
    | `ranks(r, ...)` | collectives | the ranks that meet; all without it |
    | `bytes(n)` | transfers, collectives | size |
    | `comm(n)` | transfers, collectives | communicator, 0 without it |
    | `queue(n)` | all | execution queue, 0 without it |
    | `after(...)` | all | instructions to wait for |

    `after` names instructions of the same rank by what they are; it means the
    latest earlier one. A `group` or `overlap` has the queue and the waits of its
    members.

    A schedule in its shortest form, and as a program:

    ```mlir
    pipe.schedule @short ranks(8) microbatches(24) using(#pipe.one_f_one_b)

    pipe.schedule @program ranks(2) microbatches(1) {
      rank 0 {
        forward 0 mb 0
        send activation 0 mb 0 to 1
        recv gradient 1 mb 0 from 1
        backward 0 mb 0
      }
      rank 1 {
        recv activation 0 mb 0 from 0
        forward 1 mb 0
        backward 1 mb 0
        send gradient 1 mb 0 to 0
      }
    }
    ```
  }];

  let useDefaultAttributePrinterParser = 0;
  let extraClassDeclaration = [{
    ::mlir::Attribute parseAttribute(::mlir::DialectAsmParser &parser,
                                     ::mlir::Type type) const override;
    void printAttribute(::mlir::Attribute attr,
                        ::mlir::DialectAsmPrinter &printer) const override;
    /// The mnemonics of the schedule families.
    static ::std::vector<::llvm::StringRef> getFamilyNames();

  private:
    void registerAttributes();
    void registerSpecOps();
    void registerProgramOps();

  public:
  }];
}

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEDIALECT_TD
