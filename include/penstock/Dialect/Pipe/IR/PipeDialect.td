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

  private:
    void registerAttributes();
    void registerSpecOps();
    void registerProgramOps();

  public:
  }];
}

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEDIALECT_TD
