//===- Corpus.h - The text a language model learns --------------*- C++ -*-===//
//
// The bytes of a file and the samples drawn from them.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_CORPUS_H
#define PENSTOCK_RUNTIME_MODELS_CORPUS_H

#include "ByteLmConfig.h"
#include "Random.h"
#include "penstock/Program/Result.h"

#include <string>
#include <vector>

namespace penstock::runtime {

/// A text, and windows of `context` bytes with the byte that follows them.
class Corpus {
public:
  /// Reads a file. Fails when it does not hold a single window.
  static Result<Corpus> read(const std::string &path, int32_t context);
  Corpus(std::vector<uint8_t> bytes, int32_t context)
      : bytes(std::move(bytes)), context(context) {}

  /// Window number `sample` of a micro-batch of a step: `context` bytes and the
  /// next one.
  const uint8_t *window(uint64_t seed, int64_t step, int32_t microbatch,
                        int32_t sample) const {
    const uint64_t bits = randomBits({seed, static_cast<uint64_t>(step),
                                      static_cast<uint64_t>(microbatch),
                                      static_cast<uint64_t>(sample)});
    return bytes.data() + bits % (bytes.size() - context);
  }

private:
  std::vector<uint8_t> bytes;
  int32_t context;
};

/// Where the samples of a micro-batch come from.
struct Batch {
  const Corpus &corpus;
  const ByteLmConfig &config;
  int64_t step;
  int32_t microbatch; ///< or slice
  int32_t slices = 1; ///< each has its share of the samples

  const uint8_t *window(int32_t sample) const {
    return corpus.window(config.seed, step, microbatch / slices,
                         microbatch % slices * config.samples + sample);
  }
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODELS_CORPUS_H
