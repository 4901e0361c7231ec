//===- Certify.h - Makes the proof that a program ends ----------*- C++ -*-===//
//
// The other half of penstock/Program/Certificate.h. It may be as clever as it
// likes: nobody has to trust it.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_CERTIFY_H
#define PENSTOCK_ANALYSIS_CERTIFY_H

#include "penstock/Program/Program.h"

namespace penstock {

/// Gives the program a certificate that checkCertificate accepts, if it ends
/// under closure semantics; else it has none afterwards, and the result is
/// false. Equal programs get equal times. The program must be well-formed.
/// Linear.
bool certify(Program &program);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_CERTIFY_H
