//===- ByteLmStage.h - Layers of the byte-level language model --*- C++ -*-===//
//
// The mathematics: forward, input gradient and weight gradient of each layer,
// on row-major matrices in memory that the caller owns. A template, so that
// tests can check the gradients in double precision.
//
// A full backward is the input part followed by the weight part; the input part
// leaves in the stash what the weight part needs. So fused and split backward
// are equal bit for bit.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_BYTELMSTAGE_H
#define PENSTOCK_RUNTIME_MODELS_BYTELMSTAGE_H

#include "ByteLmConfig.h"
#include "Corpus.h"
#include "Products.h"
#include "penstock/Runtime/Model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

namespace penstock::runtime {

/// Zeros, at a multiple of 64 bytes.
template <typename T>
using AlignedArray = std::unique_ptr<T, void (*)(void *)>;
template <typename T>
AlignedArray<T> makeAlignedArray(int64_t size) {
  const size_t bytes = (size * sizeof(T) + 63) / 64 * 64;
  void *memory = std::aligned_alloc(64, bytes);
  if (!memory)
    throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return {static_cast<T *>(memory), &std::free};
}

/// What one layer reads and writes in one pass over one micro-batch.
template <typename S>
struct LayerPass {
  const Batch &batch;
  const S *input = nullptr;
  S *output = nullptr;         ///< null in a recompute of the last layer
  const S *gradient = nullptr; ///< of the output
  S *inputGradient = nullptr;
  S *stash = nullptr;
  S *scratch = nullptr; ///< samples x max(width, context * embed)
  double weight = 1;    ///< of the micro-batch in the loss
};

/// One layer: parameters and gradients are arrays in the order of its shape.
template <typename S>
class Layer {
public:
  using Map = runtime::Map<S>;
  using ConstMap = runtime::ConstMap<S>;

  Layer(LayerKind kind, const ByteLmConfig &config, S *parameters, S *gradients)
      : config(config), shape(shapeOf(kind, config)), parameters(parameters),
        gradients(gradients) {}
  virtual ~Layer() = default;

  virtual void forward(const LayerPass<S> &pass) = 0;
  virtual void backwardInput(const LayerPass<S> &pass) = 0;
  virtual void backwardWeight(const LayerPass<S> &pass) = 0;
  /// From now on computes with these weights.
  void useWeights(S *newParameters) { parameters = newParameters; }

protected:
  Map parameter(size_t i) { return at(parameters, shape.parameters, i); }
  Map gradient(size_t i) { return at(gradients, shape.parameters, i); }
  Map stash(const LayerPass<S> &pass, size_t i) {
    return at(pass.stash, shape.stash, i);
  }
  /// An activation, or its gradient.
  Map activation(S *data) { return {data, config.samples, config.width}; }
  ConstMap activation(const S *data) {
    return {data, config.samples, config.width};
  }

  /// All rows become `bias`.
  static void fillRows(Map rows, const Map &bias) {
    for (int64_t i = 0; i < rows.rows(); ++i)
      std::copy_n(bias.data(), rows.cols(), rows.row(i));
  }

  /// Rows of unit mean square: n = x / rms(x).
  static void normalise(const ConstMap &x, Map n, Map inverseRms) {
    const int64_t cols = x.cols();
    for (int64_t i = 0; i < x.rows(); ++i) {
      const S *in = x.row(i);
      S *out = n.row(i);
      const S squares =
          sumOf<S>(cols, [=](int64_t j) { return in[j] * in[j]; });
      const S inverse = S(1) / std::sqrt(squares / S(cols) + S(1e-6));
      inverseRms[i] = inverse;
      for (int64_t j = 0; j < cols; ++j)
        out[j] = inverse * in[j];
    }
  }
  /// Adds to dx what the gradient of n is for x.
  static void addNormaliseBackward(const ConstMap &dn, const ConstMap &n,
                                   const ConstMap &inverseRms, Map dx) {
    const int64_t cols = dx.cols();
    for (int64_t i = 0; i < dx.rows(); ++i) {
      const S *from = dn.row(i), *unit = n.row(i);
      S *to = dx.row(i);
      const S inverse = inverseRms[i];
      const S mean =
          sumOf<S>(cols, [=](int64_t j) { return from[j] * unit[j]; }) /
          S(cols);
      for (int64_t j = 0; j < cols; ++j)
        to[j] += inverse * (from[j] - mean * unit[j]);
    }
  }
  /// Adds up the rows of `dy`.
  static void addRows(Map sum, const ConstMap &dy) {
    S *to = sum.data();
    for (int64_t i = 0; i < dy.rows(); ++i) {
      const S *from = dy.row(i);
      for (int64_t j = 0; j < dy.cols(); ++j)
        to[j] += from[j];
    }
  }

  const ByteLmConfig &config;
  const LayerShape shape;

private:
  static Map at(S *data, const std::vector<TensorShape> &tensors, size_t i) {
    for (size_t k = 0; k < i; ++k)
      data += tensors[k].stride();
    return {data, tensors[i].rows, tensors[i].cols};
  }

  S *parameters, *gradients;
};

/// The bytes of the context, each as a vector, through one linear map.
template <typename S>
class EmbeddingLayer final : public Layer<S> {
public:
  EmbeddingLayer(const ByteLmConfig &config, S *parameters, S *gradients)
      : Layer<S>(LayerKind::Embedding, config, parameters, gradients) {}

  void forward(const LayerPass<S> &pass) override {
    auto inputs = this->stash(pass, 0);
    const auto table = this->parameter(0);
    const int32_t embed = this->config.embed;
    for (int32_t i = 0; i < this->config.samples; ++i) {
      const uint8_t *window = pass.batch.window(i);
      for (int32_t c = 0; c < this->config.context; ++c)
        std::copy_n(table.row(window[c]), embed, inputs.row(i) + c * embed);
    }
    if (!pass.output)
      return;
    auto y = this->activation(pass.output);
    this->fillRows(y, this->parameter(2));
    addProduct<S>(y, inputs, this->parameter(1));
  }

  /// Nothing is before this layer.
  void backwardInput(const LayerPass<S> &) override {}

  void backwardWeight(const LayerPass<S> &pass) override {
    const auto dy = this->activation(pass.gradient);
    const auto inputs = this->stash(pass, 0);
    addTransposedProduct<S>(this->gradient(1), inputs, dy);
    this->addRows(this->gradient(2), dy);

    typename Layer<S>::Map dInputs(pass.scratch, inputs.rows(), inputs.cols());
    dInputs.setZero();
    addProductTransposed<S>(dInputs, dy, this->parameter(1));
    auto dTable = this->gradient(0);
    const int32_t embed = this->config.embed;
    for (int32_t i = 0; i < this->config.samples; ++i) {
      const uint8_t *window = pass.batch.window(i);
      for (int32_t c = 0; c < this->config.context; ++c) {
        const S *from = dInputs.row(i) + c * embed;
        S *to = dTable.row(window[c]);
        for (int32_t j = 0; j < embed; ++j)
          to[j] += from[j];
      }
    }
  }
};

/// y = x + relu(norm(x) W1 + b1) W2 + b2. The norm has no gain: W1 has it.
template <typename S>
class BlockLayer final : public Layer<S> {
public:
  BlockLayer(const ByteLmConfig &config, S *parameters, S *gradients)
      : Layer<S>(LayerKind::Block, config, parameters, gradients) {}

  void forward(const LayerPass<S> &pass) override {
    const auto x = this->activation(pass.input);
    auto n = this->stash(pass, 0), h = this->stash(pass, 2);
    this->normalise(x, n, this->stash(pass, 1));
    this->fillRows(h, this->parameter(1));
    addProduct<S>(h, n, this->parameter(0));
    for (int64_t i = 0; i < h.size(); ++i)
      h[i] = std::max(h[i], S(0));
    if (!pass.output)
      return;
    auto y = this->activation(pass.output);
    const S *bias = this->parameter(3).data();
    for (int64_t i = 0; i < y.rows(); ++i)
      for (int64_t j = 0; j < y.cols(); ++j)
        y.row(i)[j] = x.row(i)[j] + bias[j];
    addProduct<S>(y, h, this->parameter(2));
  }

  void backwardInput(const LayerPass<S> &pass) override {
    const auto dy = this->activation(pass.gradient);
    const auto n = this->stash(pass, 0), inverseRms = this->stash(pass, 1),
               h = this->stash(pass, 2);
    auto dh = this->stash(pass, 3);
    dh.setZero();
    addProductTransposed<S>(dh, dy, this->parameter(2));
    for (int64_t i = 0; i < dh.size(); ++i)
      dh[i] = h[i] > S(0) ? dh[i] : S(0);
    auto dn = this->activation(pass.scratch);
    dn.setZero();
    addProductTransposed<S>(dn, dh, this->parameter(0));
    auto dx = this->activation(pass.inputGradient);
    std::copy_n(dy.data(), dy.size(), dx.data());
    this->addNormaliseBackward(dn, n, inverseRms, dx);
  }

  void backwardWeight(const LayerPass<S> &pass) override {
    const auto dy = this->activation(pass.gradient);
    const auto dh = this->stash(pass, 3);
    addTransposedProduct<S>(this->gradient(0), this->stash(pass, 0), dh);
    this->addRows(this->gradient(1), dh);
    addTransposedProduct<S>(this->gradient(2), this->stash(pass, 2), dy);
    this->addRows(this->gradient(3), dy);
  }
};

/// Logits of the next byte, and the loss: softmax cross-entropy.
template <typename S>
class HeadLayer final : public Layer<S> {
public:
  /// The loss is a mean over the samples of a micro-batch.
  HeadLayer(const ByteLmConfig &config, S *parameters, S *gradients)
      : Layer<S>(LayerKind::Head, config, parameters, gradients) {}

  void forward(const LayerPass<S> &pass) override {
    auto n = this->stash(pass, 0), logits = this->stash(pass, 2);
    this->normalise(this->activation(pass.input), n, this->stash(pass, 1));
    this->fillRows(logits, this->parameter(1));
    addProduct<S>(logits, n, this->parameter(0));
    // Logits become their own gradients: (softmax - target) * scale.
    double sumLoss = 0;
    const S scale = S(pass.weight / this->config.samples);
    for (int32_t i = 0; i < this->config.samples; ++i) {
      const uint8_t target = pass.batch.window(i)[this->config.context];
      S *row = logits.row(i);
      const int64_t cols = logits.cols();
      const S max = *std::max_element(row, row + cols), logit = row[target];
      for (int64_t j = 0; j < cols; ++j)
        row[j] = std::exp(row[j] - max);
      const S sum = sumOf<S>(cols, [=](int64_t j) { return row[j]; });
      sumLoss += double(std::log(sum)) - double(logit - max);
      const S factor = scale / sum;
      for (int64_t j = 0; j < cols; ++j)
        row[j] *= factor;
      row[target] -= scale;
    }
    loss = sumLoss / this->config.samples;
  }

  void backwardInput(const LayerPass<S> &pass) override {
    auto dn = this->activation(pass.scratch);
    dn.setZero();
    addProductTransposed<S>(dn, this->stash(pass, 2), this->parameter(0));
    const auto n = this->stash(pass, 0), inverseRms = this->stash(pass, 1);
    auto dx = this->activation(pass.inputGradient);
    dx.setZero();
    this->addNormaliseBackward(dn, n, inverseRms, dx);
  }

  void backwardWeight(const LayerPass<S> &pass) override {
    const auto dLogits = this->stash(pass, 2);
    addTransposedProduct<S>(this->gradient(0), this->stash(pass, 0), dLogits);
    this->addRows(this->gradient(1), dLogits);
  }

  double loss = 0; ///< of the last forward, in nats per byte
};

/// The layers of one stage with their parameters, gradients and optimizer
/// state. Works on the operands of ActionContext, whose elements are of type S.
template <typename S>
class ByteLmStage {
public:
  /// `config` and `corpus` must outlive the stage. With slices,
  /// `config.samples` and `numMicrobatches` are those of slices.
  ByteLmStage(const ByteLmConfig &config, const Corpus &corpus,
              const Stage &range, int32_t numLayers, int32_t numSlices = 1)
      : config(config), corpus(corpus), numSlices(numSlices) {
    for (int32_t l = 0; l < range.numLayers; ++l) {
      const int32_t number = range.firstLayer + l;
      const LayerKind kind = kindOf(number, numLayers);
      LayerShape shape = shapeOf(kind, config);
      slices.push_back({number, shape, numValues, stashSize});
      numValues += strideOf(shape.parameters);
      stashSize += strideOf(shape.stash);
    }
    values = makeAlignedArray<S>(numValues);
    gradients = makeAlignedArray<S>(numValues);
    if (config.optimizer == Optimizer::Adam) {
      firstMoment = makeAlignedArray<S>(numValues);
      secondMoment = makeAlignedArray<S>(numValues);
    }
    const int64_t samples = config.samples;
    stream = makeAlignedArray<S>(samples * config.width);
    scratch = makeAlignedArray<S>(
        samples * std::max(config.width, config.context * config.embed));

    for (const Slice &slice : slices) {
      S *value = values.get() + slice.offset;
      S *gradient = gradients.get() + slice.offset;
      switch (kindOf(slice.layer, numLayers)) {
      case LayerKind::Embedding:
        layers.push_back(
            std::make_unique<EmbeddingLayer<S>>(config, value, gradient));
        break;
      case LayerKind::Block:
        layers.push_back(
            std::make_unique<BlockLayer<S>>(config, value, gradient));
        break;
      case LayerKind::Head:
        auto last = std::make_unique<HeadLayer<S>>(config, value, gradient);
        head = last.get();
        layers.push_back(std::move(last));
        break;
      }
      initialise(slice);
    }
  }

  int64_t stashBytes() const { return stashSize * sizeof(S); }
  bool hasHead() const { return head; }
  /// Of the last forward of a stage with a head.
  double loss() const { return head->loss; }

  /// The stash, and the output if there is one.
  void forward(const ActionContext &context, int64_t step) {
    const Batch batch = batchOf(context, step);
    const S *input = reinterpret_cast<const S *>(context.input);
    for (size_t l = 0; l < layers.size(); ++l) {
      LayerPass<S> pass = passOf(batch, context, l);
      pass.input = input;
      layers[l]->forward(pass);
      input = pass.output;
    }
  }

  void backwardInput(const ActionContext &context, int64_t step) {
    const Batch batch = batchOf(context, step);
    for (size_t l = layers.size(); l-- > 0;)
      layers[l]->backwardInput(passOf(batch, context, l));
  }

  void backwardWeight(const ActionContext &context, int64_t step) {
    const Batch batch = batchOf(context, step);
    for (size_t l = 0; l < layers.size(); ++l)
      layers[l]->backwardWeight(passOf(batch, context, l));
  }

  /// One step of the optimizer; gradients become zero.
  void update() {
    step();
    clearGradients();
  }

  /// \name Steps that may be undone
  /// @{

  /// Room for one copy of what a step changes.
  void keepUndo() {
    undoValues = makeAlignedArray<S>(numValues);
    if (firstMoment) {
      undoFirst = makeAlignedArray<S>(numValues);
      undoSecond = makeAlignedArray<S>(numValues);
    }
  }
  /// update(), but gradients stay.
  void tryStep() {
    exchange<true>();
    step();
  }
  void undoStep() {
    exchange<false>();
    --numUpdates;
  }
  /// Layer by layer, and within one in memory order.
  double squaredGradients() const {
    double sum = 0;
    for (int64_t i = 0; i < numValues; ++i)
      sum += double(gradients.get()[i]) * double(gradients.get()[i]);
    return sum;
  }
  void scaleGradients(double factor) {
    for (S &gradient : gradientArray())
      gradient *= S(factor);
  }
  void clearGradients() { std::ranges::fill(gradientArray(), S(0)); }
  /// @}

  /// Calls fn(layer, shape of the parameter, its offset) in layer order.
  template <typename Fn>
  void forEachParameter(Fn &&fn) const {
    for (const Slice &slice : slices) {
      int64_t offset = slice.offset;
      for (const TensorShape &tensor : slice.shape.parameters) {
        fn(slice.layer, tensor, offset);
        offset += tensor.stride();
      }
    }
  }
  /// All parameters, and their gradients, with the gaps between them.
  std::span<S> parameterArray() { return {values.get(), size_t(numValues)}; }
  std::span<S> gradientArray() { return {gradients.get(), size_t(numValues)}; }
  /// From now on all passes take their weights from this array, or if null from
  /// the parameters, which are the ones that are updated.
  void useWeights(S *weights) {
    for (size_t l = 0; l < layers.size(); ++l)
      layers[l]->useWeights((weights ? weights : values.get()) +
                            slices[l].offset);
  }

private:
  /// Keeps what a step changes, or takes it back.
  template <bool Keep>
  void exchange() {
    auto copy = [&](const AlignedArray<S> &own, const AlignedArray<S> &kept) {
      std::copy_n((Keep ? own : kept).get(), own ? numValues : 0,
                  (Keep ? kept : own).get());
    };
    copy(values, undoValues);
    copy(firstMoment, undoFirst);
    copy(secondMoment, undoSecond);
  }
  /// Gradients stay.
  void step() {
    const S *g = gradients.get();
    S *x = values.get();
    ++numUpdates;
    if (config.optimizer == Optimizer::Sgd) {
      const S rate = S(config.lr);
      for (int64_t i = 0; i < numValues; ++i)
        x[i] -= rate * g[i];
    } else {
      constexpr double beta1 = 0.9, beta2 = 0.99;
      const S rate = S(config.lr / (1 - std::pow(beta1, numUpdates)));
      const S correction = S(1 / (1 - std::pow(beta2, numUpdates)));
      S *m = firstMoment.get(), *v = secondMoment.get();
      for (int64_t i = 0; i < numValues; ++i) {
        m[i] = S(beta1) * m[i] + S(1 - beta1) * g[i];
        v[i] = S(beta2) * v[i] + S(1 - beta2) * g[i] * g[i];
        x[i] -= rate * m[i] / (std::sqrt(correction * v[i]) + S(1e-8));
      }
    }
  }

  Batch batchOf(const ActionContext &context, int64_t step) const {
    return {corpus, config, step, context.microbatch, numSlices};
  }
  /// Where a layer lies in the arrays of the stage and in the stash.
  struct Slice {
    int32_t layer;
    LayerShape shape;
    int64_t offset, stashOffset;
  };

  /// Operands of layer `l`, all but the input. Between the layers of a stage
  /// the activation is in `stream`; the gradient of a layer's output is the
  /// last tensor of its stash.
  LayerPass<S> passOf(const Batch &batch, const ActionContext &context,
                      size_t l) {
    auto stash = [&](size_t i) {
      return reinterpret_cast<S *>(context.stash) + slices[i].stashOffset;
    };
    auto gradient = [&](size_t i) {
      const auto &tensors = slices[i].shape.stash;
      return stash(i) + strideOf(std::span(tensors).first(tensors.size() - 1));
    };
    S *const output = reinterpret_cast<S *>(context.output);
    const bool last = l + 1 == layers.size();
    LayerPass<S> pass{batch};
    pass.output = last ? output : stream.get();
    pass.gradient =
        last ? reinterpret_cast<const S *>(context.gradient) : gradient(l);
    pass.inputGradient = l == 0 ? output : gradient(l - 1);
    pass.stash = stash(l);
    pass.scratch = scratch.get();
    pass.weight = context.weight;
    return pass;
  }

  void initialise(const Slice &slice) {
    int64_t offset = slice.offset;
    for (size_t t = 0; t < slice.shape.parameters.size(); ++t) {
      const TensorShape &tensor = slice.shape.parameters[t];
      for (int64_t i = 0; i < tensor.size(); ++i)
        values.get()[offset + i] =
            S(initialValue(config, slice.layer, t, tensor, i));
      offset += tensor.stride();
    }
  }

  const ByteLmConfig &config;
  const Corpus &corpus;
  const int32_t numSlices; ///< of a micro-batch
  std::vector<Slice> slices;
  std::vector<std::unique_ptr<Layer<S>>> layers;
  HeadLayer<S> *head = nullptr; ///< in `layers`, if it is in this stage
  int64_t numValues = 0, stashSize = 0;
  AlignedArray<S> values{nullptr, &std::free}, gradients{nullptr, &std::free},
      firstMoment{nullptr, &std::free}, secondMoment{nullptr, &std::free},
      undoValues{nullptr, &std::free}, undoFirst{nullptr, &std::free},
      undoSecond{nullptr, &std::free}, stream{nullptr, &std::free},
      scratch{nullptr, &std::free};
  int64_t numUpdates = 0;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODELS_BYTELMSTAGE_H
