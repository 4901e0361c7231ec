//===- MicrobatchTable.h - Numbers by micro-batch ---------------*- C++ -*-===//
//
// Rows of one number for every micro-batch, for walks along the list of a rank.
// Rows are flat as long as all together are not much longer than the list, and
// hashed beyond: a list that is far from complete costs no more than its
// length, however many micro-batches a problem claims.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_SUPPORT_MICROBATCHTABLE_H
#define PENSTOCK_SUPPORT_MICROBATCHTABLE_H

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace penstock {

class MicrobatchTable {
public:
  explicit MicrobatchTable(int32_t numMicrobatches)
      : microbatches(static_cast<size_t>(numMicrobatches)) {}

  /// Drops all rows; the next ones are for a list of that length.
  void clear(size_t listSize) {
    flat.clear();
    hashed.clear();
    numHashed = 0;
    limit = 16 * listSize;
  }

  /// A new row, which is kNone everywhere. No row is named kNoRow.
  int64_t addRow() {
    if (flat.size() + microbatches > limit)
      return kNoRow - ++numHashed;
    const auto row = static_cast<int64_t>(flat.size());
    flat.resize(flat.size() + microbatches, kNone);
    return row;
  }

  int32_t &at(int64_t row, int32_t microbatch) {
    if (row >= 0)
      return flat[row + microbatch];
    const uint64_t key = static_cast<uint64_t>(kNoRow - row) * microbatches +
                         static_cast<uint64_t>(microbatch);
    return hashed.try_emplace(key, kNone).first->second;
  }

  static constexpr int32_t kNone = -1;
  static constexpr int64_t kNoRow = -1;

private:
  size_t microbatches, limit = 0;
  std::vector<int32_t> flat;
  std::unordered_map<uint64_t, int32_t> hashed;
  int64_t numHashed = 0;
};

} // namespace penstock

#endif // PENSTOCK_SUPPORT_MICROBATCHTABLE_H
