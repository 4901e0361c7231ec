//===- Certificate.h - A proof that a program ends --------------*- C++ -*-===//
//
// A certificate is a time for every instruction, RankProgram::times. Whoever
// doubts the verifier reads checkCertificate, and needs to read nothing else:
// no graph, no search, and no code shared with the verifier.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_PROGRAM_CERTIFICATE_H
#define PENSTOCK_PROGRAM_CERTIFICATE_H

#include "penstock/Program/Result.h"

namespace penstock {

/// Whether the program carries times. That they hold is another question.
bool hasCertificate(const Program &program);
/// What must happen to them where a program is changed.
void dropCertificate(Program &program);

/// Success only if the times prove that the program ends under closure
/// semantics. The program must be well-formed. The rules:
///
///   item        all instructions of an item have one time
///   queue       items of one queue have increasing times, in host order
///   communicator  so have items that use one communicator
///   wait        an item is later than what it waits for
///   channel     its sends and its receives, in host order, have the same times
///   collective  the ranks of its set, and nobody else, issue it at the same
///               times
///
/// Why that is a proof: every transfer has its partner, first to first, at its
/// own time, and so has every collective all ranks of its set. Hence everything
/// that must happen as one step has one time, and everything that must happen
/// before has an earlier one. Run the steps by time: nothing ever waits for
/// what has not ended. docs/certificate.md says the same with all definitions.
///
/// O(n log c) with c channels and collectives; benchmarks/ measures it
/// (`certificate`).
Status checkCertificate(const Program &program);

} // namespace penstock

#endif // PENSTOCK_PROGRAM_CERTIFICATE_H
