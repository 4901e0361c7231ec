//===- Translations.h - In and out of the compiler --------------*- C++ -*-===//
//
// The translations of penstock-translate: --pipe-to-program, --pipe-to-text,
// --pipe-to-svg, --pipe-to-html, --pipe-to-report, --pipe-to-torch-csv,
// --program-to-pipe and --torch-csv-to-pipe.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TARGET_TRANSLATIONS_H
#define PENSTOCK_TARGET_TRANSLATIONS_H

namespace penstock {

/// Registers all of them, and --schedule, which picks one of several schedules.
void registerTranslations();

} // namespace penstock

#endif // PENSTOCK_TARGET_TRANSLATIONS_H
