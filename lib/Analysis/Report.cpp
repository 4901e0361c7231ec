//===- Report.cpp - Findings as text --------------------------------------===//

#include "penstock/Analysis/Report.h"

#include "penstock/Program/Text.h"

using namespace penstock;

std::string penstock::render(const Program &program, const Finding &finding) {
  return render(finding, [&](Site site) { return describe(program, site); });
}

std::string penstock::render(const Finding &finding,
                             const std::function<std::string(Site)> &place) {
  auto prefix = [&](Site site) {
    return site.rank < 0 ? std::string() : place(site) + ": ";
  };
  std::string text = prefix(finding.site);
  text += name(finding.rule);
  text += ": " + finding.message + '\n';
  for (const Note &note : finding.notes)
    text += "  " + prefix(note.site) + note.text + '\n';
  return text;
}

std::span<const std::string_view> penstock::assumptions() {
  static constexpr std::string_view list[] = {
      "all channels are connected before the first transfer",
      "kernels are loaded before the first transfer, or loading is eager",
      "the host never blocks: what is in flight stays below the launch queue",
      "no other work of the device waits on these queues",
      "every group fits into one plan of the transport",
      "no rank, link or device fails",
  };
  return list;
}
