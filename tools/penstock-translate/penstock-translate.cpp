//===- penstock-translate.cpp - In and out of the compiler ----------------===//
//
// Translates schedules to program files, timelines and reports, and program
// files back to schedules. `penstock-translate --help` lists the translations.
//
//===----------------------------------------------------------------------===//

#include "../OutputErrors.h"
#include "penstock/Target/Translations.h"

#include "mlir/Support/LogicalResult.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"

int main(int argc, char **argv) {
  penstock::nameOutputInErrors("penstock-translate");
  penstock::registerTranslations();
  return mlir::failed(
      mlir::mlirTranslateMain(argc, argv, "Penstock translation driver\n"));
}
