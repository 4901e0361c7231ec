//===- Profile.cpp - Measured times for the next compile ------------------===//

#include "penstock/Program/Text.h"
#include "penstock/Runtime/Recorder.h"

#include <algorithm>
#include <charconv>
#include <ostream>
#include <vector>

namespace penstock::runtime {

namespace {
struct Layer {
  StageCost cost;
  StageBytes bytes;

  bool operator==(const Layer &) const = default;
};
} // namespace

/// More digits than four are noise.
static double rounded(double value) {
  char buffer[40];
  const char *end = std::to_chars(buffer, std::end(buffer), value,
                                  std::chars_format::scientific, 3)
                        .ptr;
  std::from_chars(buffer, end, value);
  return value;
}

/// The layers of a stage; `received` is the size of its input.
static std::vector<Layer> layersOf(const Stage &stage, bool isLast,
                                   int64_t received) {
  const int64_t n = std::max(stage.numLayers, 1);
  auto share = [&](double time) {
    return rounded(time / static_cast<double>(n));
  };
  const StageCost &cost = stage.cost;
  Layer layer;
  layer.cost = {share(cost.forward), share(cost.backward), share(cost.input),
                share(cost.weight), share(cost.recompute)};
  layer.bytes.output = isLast ? received : stage.bytes.output;
  std::vector<Layer> layers(n, layer);
  layers.back().bytes.output = stage.bytes.output;
  // What is left over goes to the first ones.
  for (auto size : {&StageBytes::stash, &StageBytes::parameters,
                    &StageBytes::gradients, &StageBytes::optimizer})
    for (int64_t i = 0, total = stage.bytes.*size; i < n; ++i)
      layers[i].bytes.*size = total / n + (i < total % n);
  return layers;
}

template <typename Value>
static void
writeFields(std::ostream &os, std::string_view attribute,
            std::initializer_list<std::pair<std::string_view, Value>> fields) {
  std::string text;
  for (const auto &[name, value] : fields) {
    if (value == 0)
      continue;
    text.append(text.empty() ? "" : ", ").append(name).append(" = ");
    if constexpr (std::is_same_v<Value, double>)
      text += formatNumber(value);
    else
      text += std::to_string(value);
  }
  if (!text.empty())
    os << ' ' << attribute << text << ">)";
}

static void writeLayer(std::ostream &os, size_t stage, const Layer &layer,
                       size_t times) {
  os << "  layer \"stage " << stage << '"';
  if (times > 1)
    os << " times " << times;
  writeFields<double>(os, "costs(#pipe.cost<",
                      {{"forward", layer.cost.forward},
                       {"backward", layer.cost.backward},
                       {"input", layer.cost.input},
                       {"weight", layer.cost.weight},
                       {"recompute", layer.cost.recompute}});
  writeFields<int64_t>(os, "bytes(#pipe.bytes<",
                       {{"output", layer.bytes.output},
                        {"stash", layer.bytes.stash},
                        {"parameters", layer.bytes.parameters},
                        {"gradients", layer.bytes.gradients},
                        {"optimizer", layer.bytes.optimizer}});
  os << '\n';
}

void writeProfile(std::ostream &os, const Problem &measured) {
  os << "// Times in seconds, per micro-batch, as penstock-run has measured "
        "them.\npipe.model @measured {\n";
  int64_t received = 0;
  for (size_t s = 0; s < measured.stages.size(); ++s) {
    const std::vector<Layer> layers =
        layersOf(measured.stages[s], s + 1 == measured.stages.size(), received);
    received = measured.stages[s].bytes.output;
    for (size_t first = 0, end = 0; first < layers.size(); first = end) {
      while (end < layers.size() && layers[end] == layers[first])
        ++end;
      writeLayer(os, s, layers[first], end - first);
    }
  }
  os << "}\n\npipe.cluster @measured_on ranks(" << measured.numRanks << ')';
  if (measured.memory != 0)
    os << " memory(" << measured.memory << ')';
  auto writeLink = [&](std::string_view clause, const Link &link) {
    if (link.latency > 0)
      os << ' ' << clause
         << "(#pipe.link<latency = " << formatNumber(rounded(link.latency))
         << ">)";
  };
  writeLink("link", measured.link);
  writeLink("host_link", measured.hostLink);
  os << '\n';
}

} // namespace penstock::runtime
