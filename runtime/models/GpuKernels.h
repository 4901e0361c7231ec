//===- GpuKernels.h - What the model computes beside products ---*- C++ -*-===//
//
// Everything of the byte-level language model on a GPU that is not a matrix
// product, as functors: what one thread does, by its index. nvcc makes a kernel
// of each (GpuKernels.cu); the tests run the same functors on the CPU.
//
// T is what activations and the weights in products have, float or BFloat16.
// Products, sums and what the optimizer holds are float. A sum of many numbers
// is made by one thread, in ascending order, so that every run has the same
// bits.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_GPUKERNELS_H
#define PENSTOCK_RUNTIME_MODELS_GPUKERNELS_H

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define PENSTOCK_HOST_DEVICE __host__ __device__
#else
#define PENSTOCK_HOST_DEVICE
#endif

namespace penstock::runtime::gpu {

using BFloat16 = __nv_bfloat16;

PENSTOCK_HOST_DEVICE inline float load(float x) { return x; }
PENSTOCK_HOST_DEVICE inline float load(BFloat16 x) {
  return __bfloat162float(x);
}
PENSTOCK_HOST_DEVICE inline void store(float &to, float x) { to = x; }
/// To the nearest, ties to even.
PENSTOCK_HOST_DEVICE inline void store(BFloat16 &to, float x) {
  to = __float2bfloat16_rn(x);
}

/// Runs fn(0) .. fn(count - 1) on the stream, each in a thread.
template <typename Fn>
cudaError_t launch(cudaStream_t stream, int64_t count, const Fn &fn);

constexpr int64_t kBytes = 256; ///< values of a byte

//===----------------------------------------------------------------------===//
// Linear maps, behind their product
//===----------------------------------------------------------------------===//

/// Element of `rows` x `cols`: out = residual + sum + bias. Residual may be
/// null, and may be `out`.
template <typename T>
struct AddBias {
  const float *sum;
  const T *bias, *residual;
  T *out;
  int64_t cols;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    const float base = residual ? load(residual[i]) : 0;
    store(out[i], base + (sum[i] + load(bias[i % cols])));
  }
};

/// Element: out = relu(sum + bias).
template <typename T>
struct AddBiasRelu {
  const float *sum;
  const T *bias;
  T *out;
  int64_t cols;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    const float y = sum[i] + load(bias[i % cols]);
    store(out[i], y > 0 ? y : y == y ? 0 : y); // what is no number stays
  }
};

/// Element: the gradient of relu's input, from its output.
template <typename T>
struct ReluBackward {
  const float *gradient;
  const T *hidden;
  T *out;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    store(out[i], load(hidden[i]) > 0 ? gradient[i] : 0);
  }
};

//===----------------------------------------------------------------------===//
// Rows of unit mean square: n = x / rms(x)
//===----------------------------------------------------------------------===//

/// Row: 1 / rms(x).
template <typename T>
struct InverseRms {
  const T *x;
  float *inverse;
  int64_t cols;
  PENSTOCK_HOST_DEVICE void operator()(int64_t row) const {
    const T *const values = x + row * cols;
    float sum = 0;
    for (int64_t j = 0; j < cols; ++j) {
      const float value = load(values[j]);
      sum += value * value;
    }
    inverse[row] = 1 / sqrtf(sum / float(cols) + 1e-6f);
  }
};

/// Element.
template <typename T>
struct Normalise {
  const T *x;
  const float *inverse;
  T *out;
  int64_t cols;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    store(out[i], inverse[i / cols] * load(x[i]));
  }
};

/// Row: the mean of dn n, which NormaliseBackward takes.
template <typename T>
struct NormaliseMean {
  const float *gradient;
  const T *normalised;
  float *mean;
  int64_t cols;
  PENSTOCK_HOST_DEVICE void operator()(int64_t row) const {
    const int64_t begin = row * cols;
    float sum = 0;
    for (int64_t j = begin; j < begin + cols; ++j)
      sum += gradient[j] * load(normalised[j]);
    mean[row] = sum / float(cols);
  }
};

/// Element: dx = residual + (dn - mean n) / rms(x). Residual may be null.
template <typename T>
struct NormaliseBackward {
  const float *gradient;
  const T *normalised;
  const float *inverse, *mean;
  const T *residual;
  T *out;
  int64_t cols;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / cols;
    const float base = residual ? load(residual[i]) : 0;
    store(out[i], base + inverse[row] *
                             (gradient[i] - mean[row] * load(normalised[i])));
  }
};

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

/// Element of samples x (context * embed): the vectors of the bytes.
template <typename T>
struct LookUp {
  const uint8_t *windows; ///< samples x (context + 1)
  const T *table;
  T *out;
  int64_t context, embed;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t place = i / embed;
    const int64_t byte =
        windows[place / context * (context + 1) + place % context];
    out[i] = table[byte * embed + i % embed];
  }
};

/// Element of the table: adds the gradients of all places where its byte is, in
/// ascending order.
struct LookUpBackward {
  const int32_t *starts; ///< of each byte in `places`, and the end
  const int32_t *places; ///< sample * context + position
  const float *inputGradient;
  float *tableGradient;
  int64_t embed;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t byte = i / embed, e = i % embed;
    float sum = tableGradient[i];
    for (int32_t k = starts[byte]; k < starts[byte + 1]; ++k)
      sum += inputGradient[places[k] * embed + e];
    tableGradient[i] = sum;
  }
};

//===----------------------------------------------------------------------===//
// Softmax cross-entropy
//===----------------------------------------------------------------------===//

/// Row: the largest logit, scale / the sum of the exponentials, and the loss.
template <typename T>
struct SoftmaxLoss {
  const float *sum; ///< logits without their bias
  const T *bias;
  const uint8_t *windows;
  int64_t context;
  float scale;
  float *largest, *factor;
  double *loss;
  PENSTOCK_HOST_DEVICE float logit(int64_t row, int64_t j) const {
    return sum[row * kBytes + j] + load(bias[j]);
  }
  PENSTOCK_HOST_DEVICE void operator()(int64_t row) const {
    float max = logit(row, 0);
    for (int64_t j = 1; j < kBytes; ++j) {
      const float x = logit(row, j);
      max = x > max ? x : max;
    }
    float total = 0;
    for (int64_t j = 0; j < kBytes; ++j)
      total += expf(logit(row, j) - max);
    const int64_t target = windows[row * (context + 1) + context];
    largest[row] = max;
    factor[row] = scale / total;
    loss[row] = double(logf(total)) - double(logit(row, target) - max);
  }
};

/// Element: the gradient of the logits, (softmax - target) * scale.
template <typename T>
struct SoftmaxBackward {
  SoftmaxLoss<T> row;
  T *out;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t r = i / kBytes, j = i % kBytes;
    const int64_t target = row.windows[r * (row.context + 1) + row.context];
    const float y = expf(row.logit(r, j) - row.largest[r]) * row.factor[r];
    store(out[i], j == target ? y - row.scale : y);
  }
};

//===----------------------------------------------------------------------===//
// Optimizers
//===----------------------------------------------------------------------===//

/// Value: one step; the gradient becomes zero. `weights` are the values as
/// products take them; for T = float they are the values.
template <typename T>
struct SgdStep {
  float *values, *gradients;
  T *weights;
  float rate;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    const float x = values[i] - rate * gradients[i];
    gradients[i] = 0;
    values[i] = x;
    store(weights[i], x);
  }
};

constexpr double kBeta1 = 0.9, kBeta2 = 0.99;

/// What Adam counts: in memory of the device, so that a step may be replayed.
struct AdamCount {
  double power1 = 1, power2 = 1; ///< beta1, beta2 to the number of steps
  float rate = 0, correction = 0;
};
/// Before the values.
struct AdamBegin {
  AdamCount *count;
  double rate;
  PENSTOCK_HOST_DEVICE void operator()(int64_t) const {
    count->power1 *= kBeta1;
    count->power2 *= kBeta2;
    count->rate = float(rate / (1 - count->power1));
    count->correction = float(1 / (1 - count->power2));
  }
};
/// Value, as SgdStep.
template <typename T>
struct AdamStep {
  float *values, *gradients;
  T *weights;
  float *first, *second; ///< moments
  const AdamCount *count;
  PENSTOCK_HOST_DEVICE void operator()(int64_t i) const {
    const float g = gradients[i];
    const float m = float(kBeta1) * first[i] + float(1 - kBeta1) * g;
    const float v = float(kBeta2) * second[i] + float(1 - kBeta2) * (g * g);
    const float x =
        values[i] - count->rate * m / (sqrtf(count->correction * v) + 1e-8f);
    gradients[i] = 0;
    first[i] = m;
    second[i] = v;
    values[i] = x;
    store(weights[i], x);
  }
};

/// X(functor) for each functor there is: whoever implements launch() does so
/// for these, and the linker misses any other.
#define PENSTOCK_GPU_FUNCTORS_OF(X, T)                                         \
  X(AddBias<T>)                                                                \
  X(AddBiasRelu<T>)                                                            \
  X(ReluBackward<T>)                                                           \
  X(InverseRms<T>)                                                             \
  X(Normalise<T>)                                                              \
  X(NormaliseMean<T>)                                                          \
  X(NormaliseBackward<T>)                                                      \
  X(LookUp<T>)                                                                 \
  X(SoftmaxLoss<T>)                                                            \
  X(SoftmaxBackward<T>)                                                        \
  X(SgdStep<T>)                                                                \
  X(AdamStep<T>)
#define PENSTOCK_GPU_FUNCTORS(X)                                               \
  PENSTOCK_GPU_FUNCTORS_OF(X, float)                                           \
  PENSTOCK_GPU_FUNCTORS_OF(X, BFloat16)                                        \
  X(LookUpBackward)                                                            \
  X(AdamBegin)

} // namespace penstock::runtime::gpu

#endif // PENSTOCK_RUNTIME_MODELS_GPUKERNELS_H
