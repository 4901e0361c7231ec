//===- ByteLmConfig.h - Shape of the byte-level language model --*- C++ -*-===//
//
// What a description says, and what follows from it for each layer: its
// parameters, its stash, its bytes and its cost. Everything that must agree
// between the model and the program is computed here.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_BYTELMCONFIG_H
#define PENSTOCK_RUNTIME_MODELS_BYTELMCONFIG_H

#include "Random.h"
#include "penstock/Program/Result.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::runtime {

enum class Optimizer { Adam, Sgd };

/// What a number is.
enum class ElementType : uint8_t { Float, BFloat16 };
inline int64_t sizeOf(ElementType type) {
  return type == ElementType::Float ? 4 : 2;
}

struct ByteLmConfig {
  int32_t width = 128;  ///< of the activations between layers
  int32_t hidden = 256; ///< width inside a block
  int32_t context = 8;  ///< bytes that the model sees
  int32_t embed = 32;   ///< dimensions of the embedding of a byte
  int32_t samples = 64; ///< of a micro-batch
  double lr = 0.003;    ///< learning rate; SGD's default is 0.3
  Optimizer optimizer = Optimizer::Adam;
  double clip = 0; ///< largest norm of all gradients; 0: no limit
  /// Of activations and of what products read. Parameters, gradients, sums and
  /// the optimizer are Float in any case.
  ElementType type = ElementType::Float;
  uint64_t seed = 1;

  static Result<ByteLmConfig> parse(std::string_view description);
  /// The full description, that parses to this configuration.
  std::string str() const;
};

/// One line of help: the keys and their defaults.
std::string describeByteLm();

enum class LayerKind { Embedding, Block, Head };

/// Layer 0 is the embedding, the last one the head.
inline LayerKind kindOf(int32_t layer, int32_t numLayers) {
  return layer == 0               ? LayerKind::Embedding
         : layer == numLayers - 1 ? LayerKind::Head
                                  : LayerKind::Block;
}

/// A row-major matrix in the parameters or the stash of a layer.
struct TensorShape {
  std::string_view name;
  int64_t rows, cols;
  /// Parameters start uniform in [-bound, bound].
  double bound = 0;
  ElementType type = ElementType::Float;

  int64_t size() const { return rows * cols; }
  /// Elements up to the next tensor: all tensors start at 64 bytes, so that
  /// results do not depend on where vectors begin.
  int64_t stride() const {
    const int64_t unit = 64 / sizeOf(type);
    return (size() + unit - 1) / unit * unit;
  }
  int64_t bytes() const { return stride() * sizeOf(type); }
};

/// The arrays of a layer, in memory order.
struct LayerShape {
  std::vector<TensorShape> parameters, stash;
};
LayerShape shapeOf(LayerKind kind, const ByteLmConfig &config);

/// Elements that the tensors take one after the other, and bytes.
int64_t strideOf(std::span<const TensorShape> tensors);
int64_t bytesOf(std::span<const TensorShape> tensors);

/// What element `i` of the parameter `number` of a layer is at the start.
inline double initialValue(const ByteLmConfig &config, int32_t layer,
                           size_t number, const TensorShape &parameter,
                           int64_t i) {
  const uint64_t bits =
      randomBits({config.seed, uint64_t(layer), number, uint64_t(i)});
  const double unit = double(bits >> 11) * 0x1p-52 - 1; // [-1, 1)
  return unit * parameter.bound;
}

/// Bytes of one layer, and of a stage: the sum of its layers, and the output of
/// the last one.
StageBytes bytesOf(LayerKind kind, const ByteLmConfig &config);
StageBytes bytesOf(const Stage &stage, int32_t numLayers,
                   const ByteLmConfig &config);

/// Floating point operations, in units of the forward of a block.
StageCost costOf(LayerKind kind, const ByteLmConfig &config);

/// Layers of the program, from its stage table; fails when the table cannot be
/// a byte-lm's.
Result<int32_t> countLayers(const Problem &problem);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODELS_BYTELMCONFIG_H
