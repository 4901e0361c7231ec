// RUN: not penstock-opt %s --pipe-compile="schedule=one_b_one_f" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not penstock-opt %s --pipe-compile="schedule=cost" 2>&1 | FileCheck %s --check-prefix=NOT-A-FAMILY
// RUN: not penstock-opt %s --pipe-compile="schedule=gpipe<chunks=2>" 2>&1 | FileCheck %s --check-prefix=FIELD
// RUN: not penstock-opt %s --pipe-compile="ranks=0" 2>&1 | FileCheck %s --check-prefix=RANKS
// RUN: not penstock-opt %s --pipe-compile="microbatches=0" 2>&1 | FileCheck %s --check-prefix=MICROBATCHES
// RUN: not penstock-opt %s --pipe-compile="ranks=many" 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not penstock-opt %s --pipe-compile="ranks=-1" 2>&1 | FileCheck %s --check-prefix=MINUS-RANKS
// RUN: not penstock-opt %s --pipe-compile="microbatches=-1" 2>&1 | FileCheck %s --check-prefix=MINUS-MICROBATCHES
// RUN: not penstock-opt %s --pipe-partition-layers="ranks=-1" 2>&1 | FileCheck %s --check-prefix=MINUS-RANKS

// UNKNOWN: error: option schedule='one_b_one_f': unknown attribute '#pipe.one_b_one_f'; the schedule families are {{.*}}naive{{.*}}
// NOT-A-FAMILY: error: option schedule='cost'
// FIELD: error: option schedule='gpipe<chunks=2>': unknown field 'chunks'
// RANKS: error: schedule @s: option ranks=0 must be between 1 and
// MICROBATCHES: error: schedule @s: option microbatches=0 must be between 1 and
// MINUS-RANKS: error: schedule @s: option ranks=-1 must be between 1 and 1048576
// MINUS-MICROBATCHES: error: schedule @s: option microbatches=-1 must be between 1 and 1073741824
// MANY: invalid
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.one_f_one_b)
