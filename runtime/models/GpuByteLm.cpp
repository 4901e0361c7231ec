//===- GpuByteLm.cpp - The byte-level language model on GPUs --------------===//
//
// The layers of ByteLmStage.h with the same parameters, data and stash, for a
// device whose queues are streams. Products are cuBLAS's, always with sums in
// float; all else is in GpuKernels.h.
//
// All memory is made with the model. A step allocates nothing, and waits for
// nothing: the bytes of its micro-batches go to pinned memory in beginStep, and
// from there to the GPU by what each step issues alike, as the losses come
// back. So a step may be captured and replayed.
//
//===----------------------------------------------------------------------===//

#include "ByteLm.h"
#include "GpuKernels.h"
#include "OldWeights.h"

#include "Cuda/CudaRank.h"
#include "penstock/Analysis/WeightVersions.h"

#include <cublas_v2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

namespace penstock::runtime {

using namespace gpu;

static void check(std::string_view call, cudaError_t code) {
  if (code != cudaSuccess)
    throw ErrorException(cudaError(call, code));
}

static std::string_view wayOut(cublasStatus_t code) {
  switch (code) {
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "install cuBLAS and a driver that suits it, or use --backend=host";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "use smaller micro-batches, or more ranks";
  case CUBLAS_STATUS_ARCH_MISMATCH:
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "leave type=bf16 out, or take a newer GPU";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUDA_LAUNCH_BLOCKING=1 shows which call is at fault";
  default:
    return "CUBLAS_LOGINFO_DBG=1 says more";
  }
}

static void check(std::string_view call, cublasStatus_t code) {
  if (code == CUBLAS_STATUS_SUCCESS)
    return;
  cudaGetLastError(); // so that nobody else takes it for his
  throw ErrorException({ErrorKind::DeviceError,
                        std::string(call) + ": " + cublasGetStatusString(code) +
                            " (" + cublasGetStatusName(code) + "); " +
                            std::string(wayOut(code))});
}

namespace {

/// Memory of the current GPU and of the host, as long as this lives.
class GpuMemory {
public:
  GpuMemory() = default;
  GpuMemory(const GpuMemory &) = delete;
  GpuMemory &operator=(const GpuMemory &) = delete;
  ~GpuMemory() {
    for (void *memory : onDevice)
      cudaFree(memory);
    for (void *memory : onHost)
      cudaFreeHost(memory);
  }

  /// Zeros, once the device has been waited for.
  template <typename U>
  U *device(int64_t count) {
    const size_t bytes = std::max<size_t>(count * sizeof(U), 64);
    void *memory = nullptr;
    check("cudaMalloc", cudaMalloc(&memory, bytes));
    onDevice.push_back(memory);
    check("cudaMemset", cudaMemset(memory, 0, bytes));
    return static_cast<U *>(memory);
  }
  template <typename U>
  U *pinned(int64_t count) {
    const size_t bytes = std::max<size_t>(count * sizeof(U), 64);
    void *memory = nullptr;
    check("cudaMallocHost", cudaMallocHost(&memory, bytes));
    onHost.push_back(memory);
    return static_cast<U *>(memory);
  }

private:
  std::vector<void *> onDevice, onHost;
};

/// The products of linear maps. Matrices are row-major, as cuBLAS's transposed
/// ones are.
class Blas {
public:
  /// For products of up to so many elements.
  Blas(GpuMemory &memory, int gpu, int64_t largest) {
    check("cublasCreate", cublasCreate(&handle));
    try {
      // Sums in parts are added in float, too.
      check("cublasSetMathMode",
            cublasSetMathMode(
                handle, static_cast<cublasMath_t>(
                            CUBLAS_DEFAULT_MATH |
                            CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
      // As much as cuBLAS takes by itself, or enough to add up 16 parts of a
      // product; but not in a step, and with the same bits every time.
      int major = 0;
      check("cudaDeviceGetAttribute",
            cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                   gpu));
      workspaceBytes = std::clamp<size_t>(16 * largest * sizeof(float), 1 << 20,
                                          size_t(major >= 9 ? 32 : 4) << 20);
      workspace = memory.device<std::byte>(int64_t(workspaceBytes));
    } catch (...) {
      cublasDestroy(handle);
      throw;
    }
  }
  Blas(const Blas &) = delete;
  Blas &operator=(const Blas &) = delete;
  ~Blas() { cublasDestroy(handle); }

  /// What follows is issued there.
  void use(cudaStream_t queue) {
    if (queue == stream)
      return;
    check("cublasSetStream", cublasSetStream(handle, queue));
    check("cublasSetWorkspace",
          cublasSetWorkspace(handle, workspace, workspaceBytes));
    stream = queue;
  }
  /// The queue is about to go.
  void leave() { stream = nullptr; }

  /// c = a b, where c is m x n, and k the other dimension.
  template <typename T>
  void product(const T *a, const T *b, float *c, int m, int n, int k) {
    gemm(CUBLAS_OP_N, CUBLAS_OP_N, b, n, a, k, 0, c, m, n, k);
  }
  /// c = a b^T.
  template <typename T>
  void productTransposed(const T *a, const T *b, float *c, int m, int n,
                         int k) {
    gemm(CUBLAS_OP_T, CUBLAS_OP_N, b, k, a, k, 0, c, m, n, k);
  }
  /// c += a^T b.
  template <typename T>
  void addTransposedProduct(const T *a, const T *b, float *c, int m, int n,
                            int k) {
    gemm(CUBLAS_OP_N, CUBLAS_OP_T, b, n, a, m, 1, c, m, n, k);
  }

private:
  /// The transposed of c is that of b by that of a.
  template <typename T>
  void gemm(cublasOperation_t opB, cublasOperation_t opA, const T *b, int ldb,
            const T *a, int lda, float beta, float *c, int m, int n, int k) {
    constexpr cudaDataType type =
        std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;
    const float alpha = 1;
    check("cublasGemmEx",
          cublasGemmEx(handle, opB, opA, n, m, k, &alpha, b, type, ldb, a, type,
                       lda, &beta, c, CUDA_R_32F, n, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT));
  }

  cublasHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  void *workspace = nullptr;
  size_t workspaceBytes = 0;
};

/// Where the bytes of one micro-batch lie, in pinned memory and on the GPU: its
/// windows, and for the gradient of the table the places of each byte.
struct DataShape {
  DataShape() = default;
  DataShape(const ByteLmConfig &config, bool hasEmbedding) {
    auto end = [](int64_t begin, int64_t bytes) {
      return (begin + bytes + 63) / 64 * 64;
    };
    const int64_t n = config.samples;
    starts = places = bytes = end(0, n * (config.context + 1));
    if (!hasEmbedding)
      return;
    places = end(starts, (kBytes + 1) * int64_t(sizeof(int32_t)));
    bytes = end(places, n * config.context * int64_t(sizeof(int32_t)));
  }
  int64_t starts = 0, places = 0, bytes = 0;
};

template <typename T>
class GpuByteLm final : public InspectableModel {
public:
  GpuByteLm(std::shared_ptr<const ByteLmSource> source,
            const FittedByteLm &fitted, const Program &program, int32_t rank)
      : source(std::move(source)), config(fitted.config),
        numSlices(program.problem.slices), gpu(currentGpu()),
        blas(memory, gpu, largestProduct()),
        parts(program.problem.stages.size()),
        hasData(program.problem.numMicrobatches) {
    const Problem &problem = program.problem;
    const int32_t lastStage = problem.numStages() - 1;
    const WeightVersions versions = weightVersions(program, rank);
    for (size_t k = 0; k < problem.placement.size(); ++k) {
      const size_t s = k % parts.size();
      if (problem.placement[k] != rank || parts[s].isHere())
        continue;
      Part &part = parts[s];
      makePart(part, problem.stages[s], fitted.numLayers);
      part.old =
          OldWeights(std::max(0, versions.peak(static_cast<int32_t>(s)) - 1),
                     problem.numMicrobatches);
      for (int32_t v = 1; v < versions.peak(static_cast<int32_t>(s)); ++v)
        part.copies.push_back(memory.device<T>(part.numValues));
    }

    const int64_t n = config.samples;
    scratch = memory.device<float>(scratchSize());
    stream = memory.device<T>(n * config.width);
    rows = memory.device<float>(2 * n);
    std::vector<T> allOnes(n);
    for (T &one : allOnes)
      store(one, 1);
    ones = memory.device<T>(n);
    upload(ones, allOnes);
    for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
      hasData[mb] = problem.rankOf(0, mb) == rank ||
                    problem.rankOf(lastStage, mb) == rank;
    const int64_t m = problem.numMicrobatches;
    if (std::ranges::count(hasData, true) > 0) {
      dataShape = DataShape(config, parts[0].isHere());
      hostData = memory.pinned<std::byte>(m * dataShape.bytes);
      std::fill_n(hostData, m * dataShape.bytes, std::byte(0));
      data = memory.device<std::byte>(m * dataShape.bytes);
      if (parts[0].isHere())
        nextPlace.resize(kBytes);
    }
    if (parts[lastStage].isHere()) {
      rowLosses = memory.device<double>(n);
      losses = memory.pinned<double>(m * n);
    }
    check("cudaDeviceSynchronize", cudaDeviceSynchronize());
    loadKernels();
  }
  ~GpuByteLm() override { cudaSetDevice(gpu); }

  bool issues() const override { return true; }
  bool needsQueue() const override { return true; }
  /// Who takes old weights is known to the host only, and a capture that fails
  /// would leave that behind.
  bool canReplay() const override {
    return std::ranges::all_of(
        parts, [](const Part &part) { return part.copies.empty(); });
  }

  void beginStep(int64_t step) override {
    for (int32_t mb = 0; mb < int32_t(hasData.size()); ++mb)
      if (hasData[mb])
        fillData({source->corpus, config, step, mb, numSlices},
                 hostData + mb * dataShape.bytes);
    if (losses)
      for (size_t mb = 0; mb < hasData.size(); ++mb)
        losses[mb * config.samples] = std::numeric_limits<double>::quiet_NaN();
  }

  void forward(const ActionContext &context) override {
    Part &part = parts[context.stage];
    part.old.goForward(context.microbatch);
    Pass pass = begin(context);
    if (part.layers.front().kind == LayerKind::Embedding ||
        part.layers.back().kind == LayerKind::Head) {
      const int64_t offset = context.microbatch * dataShape.bytes;
      check("cudaMemcpyAsync",
            cudaMemcpyAsync(data + offset, hostData + offset, dataShape.bytes,
                            cudaMemcpyHostToDevice, pass.queue));
    }
    forward(pass, reinterpret_cast<T *>(context.output));
  }
  void backward(const ActionContext &context) override {
    backwardInput(context);
    backwardWeight(context);
  }
  void backwardInput(const ActionContext &context) override {
    const Pass pass = begin(context);
    for (size_t l = pass.part.layers.size(); l-- > 0;)
      backwardInput(pass, l);
  }
  void backwardWeight(const ActionContext &context) override {
    const Pass pass = begin(context);
    for (size_t l = 0; l < pass.part.layers.size(); ++l)
      backwardWeight(pass, l);
    pass.part.old.leave(context.microbatch);
  }
  void recompute(const ActionContext &context) override {
    forward(begin(context), nullptr);
  }

  void optimizerStep(int32_t) override {
    throw std::logic_error("byte-lm on a GPU issues its steps; call issueStep");
  }
  void issueStep(int32_t stage, void *queue) override {
    for (size_t s = 0; s < parts.size(); ++s)
      if (parts[s].isHere() && (stage < 0 || size_t(stage) == s))
        update(parts[s], static_cast<cudaStream_t>(queue));
  }

  std::span<float> gradients(int32_t stage) override {
    return {parts[stage].gradients, size_t(parts[stage].numValues)};
  }

  /// In double, in the order of the samples, as on the host.
  double loss(int32_t microbatch) const override {
    const double *first = losses + int64_t(microbatch) * config.samples;
    return std::accumulate(first, first + config.samples, 0.0) / config.samples;
  }

  void captureGradients() override {
    for (Part &part : parts)
      if (part.isHere() && !part.captured)
        part.captured = memory.device<float>(part.numValues);
    check("cudaDeviceSynchronize", cudaDeviceSynchronize());
  }

  /// The arrays are those of this model until the next call.
  void forEachParameter(
      int32_t stage,
      const std::function<void(const Parameter &)> &fn) const override {
    if (stage < 0 || size_t(stage) >= parts.size() || !parts[stage].isHere())
      return;
    const Part &part = parts[stage];
    check("cudaSetDevice", cudaSetDevice(gpu));
    auto download = [&](std::vector<float> &to, const float *from) {
      to.resize(part.numValues);
      check("cudaMemcpy", cudaMemcpy(to.data(), from, to.size() * sizeof(float),
                                     cudaMemcpyDeviceToHost));
    };
    download(part.hostValues, part.values);
    download(part.hostGradients,
             part.hasCapture ? part.captured : part.gradients);
    for (const Layer &layer : part.layers) {
      int64_t offset = layer.offset;
      for (const TensorShape &tensor : layer.shape.parameters) {
        fn({layer.number, tensor.name,
            std::span<const float>(part.hostValues)
                .subspan(offset, tensor.size()),
            std::span<const float>(part.hostGradients)
                .subspan(offset, tensor.size())});
        offset += tensor.stride();
      }
    }
  }

private:
  struct Layer {
    int32_t number = 0;
    LayerKind kind = LayerKind::Block;
    LayerShape shape;
    int64_t offset = 0;      ///< of its parameters, in elements
    int64_t stashOffset = 0; ///< bytes
  };
  /// A stage of this rank. Arrays of parameters are as those of ByteLmStage.
  struct Part {
    std::vector<Layer> layers; ///< none: on another rank
    int64_t numValues = 0;
    float *values = nullptr, *gradients = nullptr, *captured = nullptr;
    float *firstMoment = nullptr, *secondMoment = nullptr;
    AdamCount *count = nullptr;
    T *weights = nullptr; ///< the newest, as products take them
    OldWeights old;
    std::vector<T *> copies; ///< of weights, as `old` numbers them
    bool hasCapture = false; ///< the steps of this program make one
    mutable std::vector<float> hostValues, hostGradients;

    bool isHere() const { return !layers.empty(); }
  };
  /// One call for a stage.
  struct Pass {
    Part &part;
    const ActionContext &context;
    const T *weights;
    std::byte *data; ///< of the micro-batch
    cudaStream_t queue;
  };

  int64_t scratchSize() const {
    return config.samples *
           std::max<int64_t>({config.width, config.hidden,
                              config.context * config.embed, kBytes});
  }
  int64_t largestProduct() const {
    return std::max<int64_t>(
        scratchSize(),
        config.width *
            std::max<int64_t>(
                {config.hidden, config.context * config.embed, kBytes}));
  }
  static int currentGpu() {
    int gpu = 0;
    check("cudaGetDevice", cudaGetDevice(&gpu));
    return gpu;
  }
  template <typename U>
  static void upload(U *to, const std::vector<U> &from) {
    check("cudaMemcpy", cudaMemcpy(to, from.data(), from.size() * sizeof(U),
                                   cudaMemcpyHostToDevice));
  }

  void makePart(Part &part, const Stage &range, int32_t numLayers) {
    int64_t stashBytes = 0;
    for (int32_t l = 0; l < range.numLayers; ++l) {
      const int32_t number = range.firstLayer + l;
      const LayerKind kind = kindOf(number, numLayers);
      const LayerShape shape = shapeOf(kind, config);
      part.layers.push_back({number, kind, shape, part.numValues, stashBytes});
      part.numValues += strideOf(shape.parameters);
      stashBytes += bytesOf(shape.stash);
    }
    std::vector<float> values(part.numValues);
    std::vector<T> weights(part.numValues);
    for (const Layer &layer : part.layers) {
      int64_t offset = layer.offset;
      for (size_t t = 0; t < layer.shape.parameters.size(); ++t) {
        const TensorShape &tensor = layer.shape.parameters[t];
        for (int64_t i = 0; i < tensor.size(); ++i) {
          values[offset + i] =
              float(initialValue(config, layer.number, t, tensor, i));
          store(weights[offset + i], values[offset + i]);
        }
        offset += tensor.stride();
      }
    }
    part.values = memory.device<float>(part.numValues);
    upload(part.values, values);
    if constexpr (std::is_same_v<T, float>) {
      part.weights = part.values;
    } else {
      part.weights = memory.device<T>(part.numValues);
      upload(part.weights, weights);
    }
    part.gradients = memory.device<float>(part.numValues);
    if (config.optimizer != Optimizer::Adam)
      return;
    part.firstMoment = memory.device<float>(part.numValues);
    part.secondMoment = memory.device<float>(part.numValues);
    part.count = memory.device<AdamCount>(1);
    upload(part.count, std::vector<AdamCount>(1));
  }

  /// Makes each call once, on zeros, and leaves everything as it was. The first
  /// launch of a kernel may wait for all that is on the GPU, and in a step
  /// these may be transfers, which wait for others.
  void loadKernels() {
    struct Queue {
      cudaStream_t stream = nullptr;
      Queue() {
        check("cudaStreamCreateWithFlags",
              cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      }
      /// What is issued must have ended before its memory goes.
      ~Queue() {
        cudaStreamSynchronize(stream);
        cudaStreamDestroy(stream);
      }
    };
    GpuMemory operands;
    const int64_t bytes = int64_t(config.samples) * config.width * sizeof(T);
    ActionContext context;
    context.input = operands.device<std::byte>(bytes);
    context.gradient = operands.device<std::byte>(bytes);
    context.output = operands.device<std::byte>(bytes);
    const Queue queue;
    context.queue = queue.stream;
    for (size_t s = 0; s < parts.size(); ++s) {
      Part &part = parts[s];
      if (!part.isHere())
        continue;
      const Layer &last = part.layers.back();
      context.stage = static_cast<int32_t>(s);
      context.stash = operands.device<std::byte>(last.stashOffset +
                                                 bytesOf(last.shape.stash));
      check("cudaDeviceSynchronize", cudaDeviceSynchronize());
      forward(context);
      backward(context);
      check("cudaMemsetAsync",
            cudaMemsetAsync(part.gradients, 0, part.numValues * sizeof(float),
                            queue.stream));
      update(part, queue.stream); // changes nothing
      check("cudaStreamSynchronize", cudaStreamSynchronize(queue.stream));
      if (part.count)
        upload(part.count, std::vector<AdamCount>(1));
    }
    check("cudaDeviceSynchronize", cudaDeviceSynchronize());
    blas.leave();
  }

  /// The windows of a micro-batch, and where each byte is in them.
  void fillData(const Batch &batch, std::byte *to) {
    const int32_t n = config.samples, context = config.context;
    auto *windows = reinterpret_cast<uint8_t *>(to);
    for (int32_t i = 0; i < n; ++i)
      std::memcpy(windows + int64_t(i) * (context + 1), batch.window(i),
                  context + 1);
    if (nextPlace.empty())
      return;
    auto *starts = reinterpret_cast<int32_t *>(to + dataShape.starts);
    auto *places = reinterpret_cast<int32_t *>(to + dataShape.places);
    std::fill_n(starts, kBytes + 1, 0);
    auto forEachPlace = [&](auto &&fn) {
      for (int32_t i = 0; i < n; ++i)
        for (int32_t c = 0; c < context; ++c)
          fn(i * context + c, windows[int64_t(i) * (context + 1) + c]);
    };
    forEachPlace([&](int32_t, uint8_t byte) { ++starts[byte + 1]; });
    std::partial_sum(starts, starts + kBytes + 1, starts);
    std::copy_n(starts, kBytes, nextPlace.begin());
    forEachPlace([&](int32_t place, uint8_t byte) {
      places[nextPlace[byte]++] = place;
    });
  }

  //===--------------------------------------------------------------------===//
  // Operands
  //===--------------------------------------------------------------------===//

  Pass begin(const ActionContext &context) {
    Part &part = parts[context.stage];
    const int32_t version = part.old.of(context.microbatch);
    const auto queue = static_cast<cudaStream_t>(context.queue);
    blas.use(queue);
    return {
        part, context,
        version == OldWeights::kNewest ? part.weights : part.copies[version],
        data ? data + context.microbatch * dataShape.bytes : nullptr, queue};
  }
  template <typename Fn>
  static void run(const Pass &pass, int64_t count, const Fn &fn) {
    check("cudaLaunchKernel", launch(pass.queue, count, fn));
  }

  static int64_t offsetOf(const Layer &layer, size_t i) {
    return layer.offset + strideOf(std::span(layer.shape.parameters).first(i));
  }
  static const T *weight(const Pass &pass, size_t l, size_t i) {
    return pass.weights + offsetOf(pass.part.layers[l], i);
  }
  static float *gradient(const Pass &pass, size_t l, size_t i) {
    return pass.part.gradients + offsetOf(pass.part.layers[l], i);
  }
  template <typename U = T>
  static U *stash(const Pass &pass, size_t l, size_t i) {
    const Layer &layer = pass.part.layers[l];
    return reinterpret_cast<U *>(
        pass.context.stash + layer.stashOffset +
        bytesOf(std::span(layer.shape.stash).first(i)));
  }
  /// Of the layer's output: the last tensor of its stash, or what comes in.
  static const T *outputGradient(const Pass &pass, size_t l) {
    const auto &layers = pass.part.layers;
    return l + 1 == layers.size()
               ? reinterpret_cast<const T *>(pass.context.gradient)
               : stash(pass, l, layers[l].shape.stash.size() - 1);
  }
  static T *inputGradient(const Pass &pass, size_t l) {
    return l == 0 ? reinterpret_cast<T *>(pass.context.output)
                  : stash(pass, l - 1,
                          pass.part.layers[l - 1].shape.stash.size() - 1);
  }
  const uint8_t *windows(const Pass &pass) const {
    return reinterpret_cast<const uint8_t *>(pass.data);
  }

  //===--------------------------------------------------------------------===//
  // Layers
  //===--------------------------------------------------------------------===//

  /// The stash, and the output if there is to be one.
  void forward(const Pass &pass, T *output) {
    const T *input = reinterpret_cast<const T *>(pass.context.input);
    for (size_t l = 0; l < pass.part.layers.size(); ++l) {
      T *const y = l + 1 == pass.part.layers.size() ? output : stream;
      switch (pass.part.layers[l].kind) {
      case LayerKind::Embedding:
        embed(pass, l, y);
        break;
      case LayerKind::Block:
        runBlock(pass, l, input, y);
        break;
      case LayerKind::Head:
        findLoss(pass, l, input);
        break;
      }
      input = y;
    }
  }

  void embed(const Pass &pass, size_t l, T *y) {
    const int n = config.samples, width = config.width,
              inputs = config.context * config.embed;
    T *const x = stash(pass, l, 0);
    run(pass, int64_t(n) * inputs,
        LookUp<T>{windows(pass), weight(pass, l, 0), x, config.context,
                  config.embed});
    if (!y)
      return;
    blas.product(x, weight(pass, l, 1), scratch, n, width, inputs);
    run(pass, int64_t(n) * width,
        AddBias<T>{scratch, weight(pass, l, 2), nullptr, y, width});
  }

  /// Rows of unit mean square, into the first two tensors of the stash.
  void normalise(const Pass &pass, size_t l, const T *x) {
    const int64_t n = config.samples, width = config.width;
    auto *inverse = stash<float>(pass, l, 1);
    run(pass, n, InverseRms<T>{x, inverse, width});
    run(pass, n * width, Normalise<T>{x, inverse, stash(pass, l, 0), width});
  }

  void runBlock(const Pass &pass, size_t l, const T *x, T *y) {
    const int n = config.samples, width = config.width, hidden = config.hidden;
    T *const normalised = stash(pass, l, 0), *const h = stash(pass, l, 2);
    normalise(pass, l, x);
    blas.product(normalised, weight(pass, l, 0), scratch, n, hidden, width);
    run(pass, int64_t(n) * hidden,
        AddBiasRelu<T>{scratch, weight(pass, l, 1), h, hidden});
    if (!y)
      return;
    blas.product(h, weight(pass, l, 2), scratch, n, width, hidden);
    run(pass, int64_t(n) * width,
        AddBias<T>{scratch, weight(pass, l, 3), x, y, width});
  }

  void findLoss(const Pass &pass, size_t l, const T *x) {
    const int n = config.samples;
    normalise(pass, l, x);
    blas.product(stash(pass, l, 0), weight(pass, l, 0), scratch, n, int(kBytes),
                 config.width);
    const SoftmaxLoss<T> softmax{scratch,
                                 weight(pass, l, 1),
                                 windows(pass),
                                 config.context,
                                 float(pass.context.weight / n),
                                 rows,
                                 rows + n,
                                 rowLosses};
    run(pass, n, softmax);
    run(pass, n * kBytes, SoftmaxBackward<T>{softmax, stash(pass, l, 2)});
    check("cudaMemcpyAsync",
          cudaMemcpyAsync(losses + int64_t(pass.context.microbatch) * n,
                          rowLosses, n * sizeof(double), cudaMemcpyDeviceToHost,
                          pass.queue));
  }

  /// From the gradient of the rows, which is in `scratch`.
  void normaliseBackward(const Pass &pass, size_t l, const T *residual) {
    const int64_t n = config.samples, width = config.width;
    const T *const normalised = stash(pass, l, 0);
    run(pass, n, NormaliseMean<T>{scratch, normalised, rows, width});
    run(pass, n * width,
        NormaliseBackward<T>{scratch, normalised, stash<float>(pass, l, 1),
                             rows, residual, inputGradient(pass, l), width});
  }

  void backwardInput(const Pass &pass, size_t l) {
    const int n = config.samples, width = config.width, hidden = config.hidden;
    switch (pass.part.layers[l].kind) {
    case LayerKind::Embedding:
      return; // nothing is before this layer
    case LayerKind::Block: {
      const T *const dy = outputGradient(pass, l);
      T *const dh = stash(pass, l, 3);
      blas.productTransposed(dy, weight(pass, l, 2), scratch, n, hidden, width);
      run(pass, int64_t(n) * hidden,
          ReluBackward<T>{scratch, stash(pass, l, 2), dh});
      blas.productTransposed<T>(dh, weight(pass, l, 0), scratch, n, width,
                                hidden);
      return normaliseBackward(pass, l, dy);
    }
    case LayerKind::Head:
      blas.productTransposed<T>(stash(pass, l, 2), weight(pass, l, 0), scratch,
                                n, width, int(kBytes));
      return normaliseBackward(pass, l, nullptr);
    }
  }

  /// The gradients of parameters `i`, a matrix, and `i + 1`, its bias, of
  /// y = x W + b.
  void addGradients(const Pass &pass, size_t l, size_t i, const T *x,
                    const T *dy) {
    const TensorShape &shape = pass.part.layers[l].shape.parameters[i];
    const auto rows = int(shape.rows), cols = int(shape.cols);
    blas.addTransposedProduct(x, dy, gradient(pass, l, i), rows, cols,
                              config.samples);
    blas.addTransposedProduct<T>(ones, dy, gradient(pass, l, i + 1), 1, cols,
                                 config.samples);
  }

  void backwardWeight(const Pass &pass, size_t l) {
    switch (pass.part.layers[l].kind) {
    case LayerKind::Embedding: {
      const T *const dy = outputGradient(pass, l);
      addGradients(pass, l, 1, stash(pass, l, 0), dy);
      blas.productTransposed(dy, weight(pass, l, 1), scratch, config.samples,
                             config.context * config.embed, config.width);
      return run(
          pass, kBytes * config.embed,
          LookUpBackward{
              reinterpret_cast<const int32_t *>(pass.data + dataShape.starts),
              reinterpret_cast<const int32_t *>(pass.data + dataShape.places),
              scratch, gradient(pass, l, 0), config.embed});
    }
    case LayerKind::Block:
      addGradients(pass, l, 0, stash(pass, l, 0), stash(pass, l, 3));
      return addGradients(pass, l, 2, stash(pass, l, 2),
                          outputGradient(pass, l));
    case LayerKind::Head:
      return addGradients(pass, l, 0, stash(pass, l, 0), stash(pass, l, 2));
    }
  }

  void update(Part &part, cudaStream_t queue) {
    auto copy = [&](auto *to, const auto *from) {
      check("cudaMemcpyAsync",
            cudaMemcpyAsync(to, from, part.numValues * sizeof(*to),
                            cudaMemcpyDeviceToDevice, queue));
    };
    auto runUpdate = [&](int64_t count, const auto &fn) {
      check("cudaLaunchKernel", launch(queue, count, fn));
    };
    if (part.captured) {
      copy(part.captured, part.gradients);
      part.hasCapture = true;
    }
    if (const int32_t version = part.old.beforeUpdate();
        version != OldWeights::kNewest)
      copy(part.copies[version], part.weights);
    if (config.optimizer == Optimizer::Sgd)
      return runUpdate(part.numValues,
                       SgdStep<T>{part.values, part.gradients, part.weights,
                                  float(config.lr)});
    runUpdate(1, AdamBegin{part.count, config.lr});
    runUpdate(part.numValues,
              AdamStep<T>{part.values, part.gradients, part.weights,
                          part.firstMoment, part.secondMoment, part.count});
  }

  const std::shared_ptr<const ByteLmSource> source;
  const ByteLmConfig config; ///< of a slice
  const int32_t numSlices;
  const int gpu;
  GpuMemory memory;
  Blas blas;               ///< goes before its workspace does
  std::vector<Part> parts; ///< one per stage

  /// \name On the GPU, in use during a call only
  /// @{
  float *scratch = nullptr; ///< a product
  T *stream = nullptr;      ///< the activation between two layers
  float *rows = nullptr;    ///< two numbers of each sample
  double *rowLosses = nullptr;
  T *ones = nullptr; ///< one for each sample
  /// @}

  /// \name Of all micro-batches
  /// @{
  std::vector<bool> hasData; ///< whether this rank needs their bytes
  DataShape dataShape;
  std::byte *hostData = nullptr, *data = nullptr;
  std::vector<int32_t> nextPlace; ///< of fillData; empty: no embedding
  double *losses = nullptr;       ///< of each sample, since beginStep
  /// @}
};

} // namespace

static Result<std::unique_ptr<Model>>
makeGpuByteLm(const std::shared_ptr<const ByteLmSource> &source,
              const Program &program, int32_t rank) {
  auto fitted = fitByteLm(source->config, program.problem);
  if (!fitted)
    return fitted.failure();
  auto make = [&](auto number) -> std::unique_ptr<Model> {
    return std::make_unique<GpuByteLm<decltype(number)>>(source, *fitted,
                                                         program, rank);
  };
  return fitted->config.type == ElementType::Float ? make(float())
                                                   : make(BFloat16());
}

Result<ModelFactory> makeGpuModel(std::string_view description,
                                  const std::string &textPath) {
  auto source = ByteLmSource::make(description, textPath);
  if (!source)
    return source.failure();
  if ((*source)->config.clip > 0)
    return Failure{"byte-lm cannot clip on GPUs, which have no post-validation "
                   "yet; leave clip out, or use --backend=host"};
  return ModelFactory([source = *source](const Program &program, int32_t rank) {
    return makeGpuByteLm(source, program, rank);
  });
}

} // namespace penstock::runtime
