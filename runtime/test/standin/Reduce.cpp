//===- Reduce.cpp - What collectives compute ------------------------------===//

#include "Reduce.h"

#include <algorithm>
#include <cstring>

using namespace penstock::standin;

size_t penstock::standin::sizeOf(ncclDataType_t type) {
  switch (type) {
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64:
    return 8;
  default:
    return 1;
  }
}

size_t penstock::standin::sendBytes(const Collective &c, int rank, size_t unit,
                                    size_t n) {
  switch (c.kind) {
  case Collective::Broadcast:
    return rank == c.root ? unit : 0;
  case Collective::Scatter:
    return rank == c.root ? n * unit : 0;
  case Collective::ReduceScatter:
  case Collective::AllToAll:
    return n * unit;
  default:
    return unit;
  }
}
size_t penstock::standin::receiveBytes(const Collective &c, int rank,
                                       size_t unit, size_t n) {
  switch (c.kind) {
  case Collective::Reduce:
    return rank == c.root ? unit : 0;
  case Collective::Gather:
    return rank == c.root ? n * unit : 0;
  case Collective::AllGather:
  case Collective::AllToAll:
    return n * unit;
  default:
    return unit;
  }
}

namespace {

template <typename T>
struct Wide {
  using type = T;
  static type load(T x) { return x; }
  static T store(type x) { return x; }
};
template <>
struct Wide<__half> {
  using type = float;
  static float load(__half x) { return __half2float(x); }
  static __half store(float x) { return __float2half(x); }
};
template <>
struct Wide<__nv_bfloat16> {
  using type = float;
  static float load(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __nv_bfloat16 store(float x) { return __float2bfloat16(x); }
};

/// result[i] = the reduction of parts[r][i] over r.
template <typename T>
void reduceAs(ncclRedOp_t op, size_t count,
              const std::vector<const std::byte *> &parts, std::byte *result) {
  using W = Wide<T>;
  for (size_t i = 0; i < count; ++i) {
    auto load = [&](size_t r) {
      T x;
      std::memcpy(&x, parts[r] + i * sizeof(T), sizeof(T));
      return W::load(x);
    };
    typename W::type value = load(0);
    for (size_t r = 1; r < parts.size(); ++r) {
      const typename W::type x = load(r);
      switch (op) {
      case ncclProd:
        value = static_cast<typename W::type>(value * x);
        break;
      case ncclMax:
        value = std::max(value, x);
        break;
      case ncclMin:
        value = std::min(value, x);
        break;
      default:
        value = static_cast<typename W::type>(value + x);
      }
    }
    if (op == ncclAvg)
      value = static_cast<typename W::type>(
          value / static_cast<typename W::type>(parts.size()));
    const T stored = W::store(value);
    std::memcpy(result + i * sizeof(T), &stored, sizeof(T));
  }
}

void reduce(const Collective &c, const std::vector<const std::byte *> &parts,
            std::byte *result) {
  switch (c.type) {
  case ncclInt8:
    return reduceAs<int8_t>(c.op, c.count, parts, result);
  case ncclInt32:
    return reduceAs<int32_t>(c.op, c.count, parts, result);
  case ncclUint32:
    return reduceAs<uint32_t>(c.op, c.count, parts, result);
  case ncclInt64:
    return reduceAs<int64_t>(c.op, c.count, parts, result);
  case ncclUint64:
    return reduceAs<uint64_t>(c.op, c.count, parts, result);
  case ncclFloat16:
    return reduceAs<__half>(c.op, c.count, parts, result);
  case ncclFloat32:
    return reduceAs<float>(c.op, c.count, parts, result);
  case ncclFloat64:
    return reduceAs<double>(c.op, c.count, parts, result);
  case ncclBfloat16:
    return reduceAs<__nv_bfloat16>(c.op, c.count, parts, result);
  default:
    return reduceAs<uint8_t>(c.op, c.count, parts, result);
  }
}

} // namespace

void penstock::standin::runCollective(
    const Collective &c, const std::vector<Part> &parts,
    const std::function<bool(const void *, size_t)> &isUsable) {
  const size_t n = parts.size(), unit = c.count * sizeOf(c.type);
  // All that is sent, before anything is received: buffers may be the same.
  std::vector<std::vector<std::byte>> sent;
  for (const Part &part : parts) {
    const size_t size = sendBytes(c, part.rank, unit, n);
    if (size && !isUsable(part.send, size))
      return;
    const auto *from = static_cast<const std::byte *>(part.send);
    sent.emplace_back(from, from + size);
  }
  for (size_t r = 0; r < n; ++r) {
    const Part &part = parts[r];
    const size_t size = receiveBytes(c, part.rank, unit, n);
    if (size == 0 || !isUsable(part.receive, size))
      continue;
    auto *to = static_cast<std::byte *>(part.receive);
    const auto root = static_cast<size_t>(c.root);
    std::vector<const std::byte *> from;
    switch (c.kind) {
    case Collective::AllReduce:
    case Collective::Reduce:
    case Collective::ReduceScatter:
      for (size_t s = 0; s < n; ++s)
        from.push_back(sent[s].data() +
                       (c.kind == Collective::ReduceScatter ? r * unit : 0));
      reduce(c, from, to);
      break;
    case Collective::Broadcast:
      std::memcpy(to, sent[root].data(), unit);
      break;
    case Collective::Scatter:
      std::memcpy(to, sent[root].data() + r * unit, unit);
      break;
    default: // from everybody
      for (size_t s = 0; s < n; ++s)
        std::memcpy(to + s * unit,
                    sent[s].data() +
                        (c.kind == Collective::AllToAll ? r * unit : 0),
                    unit);
    }
  }
}
