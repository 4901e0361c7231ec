//===- Launch.cpp - What the launcher says about a process ----------------===//

#include "Launch.h"

#include <array>
#include <charconv>

namespace penstock::runtime {

namespace {
/// A place from which number and size come.
struct Source {
  const char *who, *number, *size, *local;
};
} // namespace

/// In this order the first that is there is used.
static constexpr std::array<Source, 4> kSources = {{
    {"the options", "--rank", "--world-size", nullptr},
    {"torchrun's variables", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI's variables", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"Slurm's variables", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
}};

/// More processes than that are a mistake.
static constexpr int32_t kMaxProcesses = 1 << 16;

using Found = Result<std::optional<int32_t>>;

static Found readVariable(const Environment &environment, const char *name,
                          int32_t least) {
  const char *text = name ? environment(name) : nullptr;
  if (!text || !*text)
    return std::optional<int32_t>();
  const std::string_view view = text;
  int32_t value = 0;
  const auto [rest, error] =
      std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || rest != view.data() + view.size() ||
      value < least || value > kMaxProcesses)
    return Failure{std::string(name) + " is '" + text +
                   "' and not a number from " + std::to_string(least) + " to " +
                   std::to_string(kMaxProcesses) +
                   "; unset it, or give --rank and --world-size"};
  return std::optional(value);
}

/// Number and size of this process, and who says so.
static Status findNumber(const Rendezvous &rendezvous,
                         const Environment &environment, Place &place) {
  struct Said {
    std::optional<int32_t> value;
    const char *variable = nullptr;
  };
  Said number, size;
  const bool optionsSayAll = rendezvous.number && rendezvous.size;
  auto add = [&](Said &said, std::optional<int32_t> value, const char *variable,
                 const char *what) -> Status {
    if (!value)
      return success();
    if (!said.value)
      said = {value, variable};
    else if (*said.value != *value)
      return Failure{std::string("contradiction: ") + said.variable +
                     " says that " + what + " is " +
                     std::to_string(*said.value) + ", but " + variable +
                     " says " + std::to_string(*value) +
                     "; unset the wrong one, or give both --rank and "
                     "--world-size, which overrule all variables"};
    return success();
  };
  std::string who;
  for (const Source &source : kSources) {
    const bool isOptions = source.local == nullptr;
    if (optionsSayAll && !isOptions)
      break;
    Found ownNumber = isOptions ? Found(rendezvous.number)
                                : readVariable(environment, source.number, 0);
    Found ownSize = isOptions ? Found(rendezvous.size)
                              : readVariable(environment, source.size, 1);
    Found local = readVariable(environment, source.local, 0);
    for (const Found *found : {&ownNumber, &ownSize, &local})
      if (!*found)
        return found->failure();
    if (!*ownNumber && !*ownSize)
      continue;
    const bool adds =
        (*ownNumber && !number.value) || (*ownSize && !size.value);
    if (Status status =
            add(number, *ownNumber, source.number, "this process's rank");
        !status)
      return status;
    if (Status status =
            add(size, *ownSize, source.size, "the number of processes");
        !status)
      return status;
    if (!place.localNumber)
      place.localNumber = *local;
    if (adds)
      who += (who.empty() ? "" : " and ") + std::string(source.who) + " (";
    if (adds) {
      std::string names;
      if (number.variable == source.number)
        names = source.number;
      if (size.variable == source.size)
        names += (names.empty() ? "" : ", ") + std::string(source.size);
      who += names + ")";
    }
  }
  if (!number.value && !size.value)
    return Failure{
        "nothing says which of how many processes this is: there are no "
        "variables of torchrun (RANK, WORLD_SIZE), Open MPI "
        "(OMPI_COMM_WORLD_RANK) or Slurm (SLURM_PROCID); start it with one of "
        "these, or give --rank and --world-size"};
  if (!number.value)
    return Failure{std::string(size.variable) + " says that there are " +
                   std::to_string(*size.value) +
                   " processes, but nothing which of them this is; give --rank "
                   "or set RANK"};
  if (!size.value)
    return Failure{std::string(number.variable) +
                   " says that this is process " +
                   std::to_string(*number.value) +
                   ", but nothing of how many; give --world-size or set "
                   "WORLD_SIZE"};
  if (*size.value < 1 || *size.value > kMaxProcesses || *number.value < 0 ||
      *number.value >= *size.value)
    return Failure{"there is no process " + std::to_string(*number.value) +
                   " (" + number.variable + ") among " +
                   std::to_string(*size.value) + " (" + size.variable +
                   "); they are numbered from 0, and there are at most " +
                   std::to_string(kMaxProcesses)};
  place.number = *number.value;
  place.size = *size.value;
  place.source = who;
  return success();
}

std::string firstHost(std::string_view nodeList) {
  const size_t end = nodeList.find_first_of(",[");
  std::string host(nodeList.substr(0, end));
  if (end == std::string_view::npos || nodeList[end] == ',')
    return host;
  // Of `[01-03,7]` the first number, and what stands behind the bracket.
  nodeList.remove_prefix(end + 1);
  host += nodeList.substr(0, nodeList.find_first_of("-,]"));
  if (const size_t close = nodeList.find(']'); close != nodeList.npos) {
    nodeList.remove_prefix(close + 1);
    host += nodeList.substr(0, nodeList.find(','));
  }
  return host;
}

/// Where process 0 listens, as the environment says.
static Status findAddress(const Environment &environment, Place &place) {
  auto text = [&](const char *name) {
    const char *value = environment(name);
    return std::string(value ? value : "");
  };
  std::string host = text("MASTER_ADDR"), port = text("MASTER_PORT");
  place.where = "MASTER_ADDR and MASTER_PORT";
  const std::string job = text("SLURM_JOB_ID");
  if (host.empty() && port.empty() && !job.empty()) {
    std::string nodes = text("SLURM_STEP_NODELIST");
    if (nodes.empty())
      nodes = text("SLURM_JOB_NODELIST");
    host = firstHost(nodes);
    // All processes of a step find the same, and two steps seldom do.
    uint64_t number = 0;
    for (char c : job + "." + text("SLURM_STEP_ID"))
      number = number * 31 + static_cast<unsigned char>(c);
    port = std::to_string(10'000 + number % 20'000);
    place.where =
        "the first node of Slurm's step, and a port made of its number";
  }
  if (host.empty() || port.empty())
    return Failure{std::string(host.empty() ? "MASTER_ADDR" : "MASTER_PORT") +
                   " is not set, so that nothing says where process 0 listens; "
                   "set MASTER_ADDR and MASTER_PORT, or give "
                   "--rendezvous=tcp://HOST:PORT"};
  Address check{host, 1};
  Result<Address> address =
      parseAddress(check.str().substr(0, check.str().rfind(':') + 1) + port);
  if (!address)
    return Failure{place.where + ": " + address.message()};
  place.address = *address;
  // There torchrun itself listens, and says so.
  if (text("TORCHELASTIC_USE_AGENT_STORE") == "True" &&
      place.address.port < 65535) {
    ++place.address.port;
    place.where += ", the next port because torchrun has that one";
  }
  return success();
}

Result<Place> findPlace(const Rendezvous &rendezvous,
                        const Environment &environment) {
  Place place;
  const std::string &where = rendezvous.where;
  if (where.starts_with("tcp://")) {
    Result<Address> address = parseAddress(std::string_view(where).substr(6));
    if (!address)
      return Failure{"--rendezvous=" + where + ": " + address.message()};
    place.address = *address;
    place.where = where;
  } else if (where.starts_with("file://")) {
    place.path = where.substr(7);
    place.where = where;
    if (place.path.empty())
      return Failure{"--rendezvous=" + where +
                     " names no path; give one that all processes see, as "
                     "file:///shared/job7"};
  } else if (where != "env") {
    return Failure{"--rendezvous=" + where +
                   " is unknown; there are: env, tcp://HOST:PORT, file://PATH, "
                   "mpi"};
  }
  if (Status status = findNumber(rendezvous, environment, place); !status)
    return status.failure();
  if (where == "env")
    if (Status status = findAddress(environment, place); !status)
      return status.failure();

  place.runId = rendezvous.runId;
  for (const char *name :
       {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    const char *value = environment(name);
    if (rendezvous.runId.empty() && value)
      place.runId.append(name).append("=").append(value).append(" ");
  }
  return place;
}

} // namespace penstock::runtime
