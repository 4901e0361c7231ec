//===- ByteLm.h - The byte-level language model -----------------*- C++ -*-===//
//
// The stages of one rank behind the Model interface.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_BYTELM_H
#define PENSTOCK_RUNTIME_MODELS_BYTELM_H

#include "ByteLmConfig.h"
#include "Corpus.h"
#include "penstock/Runtime/Models.h"

namespace penstock::runtime {

/// What all ranks share: the configuration and the text.
struct ByteLmSource {
  ByteLmConfig config;
  Corpus corpus;

  static Result<std::shared_ptr<const ByteLmSource>>
  make(std::string_view description, const std::string &textPath);
};

/// The configuration of one slice, which has its share of the samples. Fails
/// when they cannot be shared out.
Result<ByteLmConfig> configOfSlice(const ByteLmConfig &config, int32_t slices);

/// What a program makes of the configuration.
struct FittedByteLm {
  ByteLmConfig config; ///< of a slice
  int32_t numLayers = 0;
};
/// Fails when the program's stages do not suit the model.
Result<FittedByteLm> fitByteLm(const ByteLmConfig &config,
                               const Problem &problem);

/// The model of one rank, on the host. Fails when the program's stages do not
/// suit it.
Result<std::unique_ptr<InspectableModel>>
makeByteLm(std::shared_ptr<const ByteLmSource> source, const Program &program,
           int32_t rank);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODELS_BYTELM_H
