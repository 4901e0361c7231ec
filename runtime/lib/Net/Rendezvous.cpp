//===- Rendezvous.cpp - How processes find each other ---------------------===//

#include "Rendezvous.h"

#include "penstock/Program/Text.h"
#include "penstock/Support/Temporary.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <thread>

namespace penstock::runtime {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

//===----------------------------------------------------------------------===//
// What is said
//===----------------------------------------------------------------------===//

namespace {
constexpr char kMagic[9] = "penstock";
constexpr uint32_t kVersion = 3;

/// What who comes says first, in the byte order of all machines that matter.
struct Hello {
  char magic[8];
  uint32_t version, size, number; ///< so far alike in all versions
  uint16_t port;                  ///< where it listens itself
  uint16_t unused;
  uint64_t token; ///< of the run
  uint32_t pid, unused2;
};
static_assert(sizeof(Hello) == 40 &&
              std::endian::native == std::endian::little);
constexpr size_t kAlikeBytes = offsetof(Hello, port);

enum class Answer : uint32_t {
  Welcome,  ///< the addresses of processes 1, 2, ..., a line each
  Refused,  ///< why
  OtherRun, ///< not of this run
  Waits,    ///< for others: a sign of life, and another answer follows
};
/// What process 0 answers; `length` bytes of text follow.
struct Reply {
  char magic[8];
  uint32_t version;
  Answer answer;
  uint32_t length, unused;
};
static_assert(sizeof(Reply) == 24);
constexpr uint32_t kMaxText = 1 << 24;

/// How long a visitor may take to say who he is.
constexpr auto kHelloTime = 5s;
/// How long an answer of process 0 may take beyond the time limit, which it
/// tells when the others' has just passed; if it lives.
constexpr auto kGrace = 2s;
/// How often process 0 says that it lives, and how long it may keep silent.
constexpr auto kSignTime = 200ms, kSilentTime = 4 * kSignTime;
/// How long another process 0 may take to answer.
constexpr auto kRivalTime = 1s;
/// How long the processes may take to connect to each other once all are there.
constexpr auto kConnectTime = 15s;
constexpr size_t kMaxVisitors = 256;
} // namespace

static uint64_t hashOf(std::string_view text) {
  Hasher hasher;
  hasher.add(text.size());
  hasher.add(text.data(), text.size());
  return hasher.finish().low;
}

static std::string packHello(const Place &place, uint64_t token,
                             uint16_t port) {
  Hello hello = {{},
                 kVersion,
                 uint32_t(place.size),
                 uint32_t(place.number),
                 port,
                 0,
                 token,
                 uint32_t(getpid()),
                 0};
  std::memcpy(hello.magic, kMagic, 8);
  return {reinterpret_cast<const char *>(&hello), sizeof(hello)};
}

/// Tells a visitor; whether it hears is its own affair.
static Status answer(const Socket &socket, Answer answer,
                     const std::string &text) {
  Reply reply = {{}, kVersion, answer, uint32_t(text.size()), 0};
  std::memcpy(reply.magic, kMagic, 8);
  return socket.write(
      std::string(reinterpret_cast<const char *>(&reply), sizeof(reply)) + text,
      Clock::now() + 1s);
}

/// This process, so that it can be found.
static std::string ownName() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return "pid " + std::to_string(getpid()) + " on " + host;
}

/// `one` and `other` say who they are.
static std::string describeTwins(uint32_t number, int32_t size,
                                 const std::string &one,
                                 const std::string &other) {
  return "two processes say that they are process " + std::to_string(number) +
         " of " + std::to_string(size) + ", " + one + " and " + other +
         "; give each its own --rank, and each run its own --run-id and "
         "--rendezvous";
}

/// Bytes of a stranger, fit to be shown.
static std::string shown(std::string_view bytes) {
  std::string text;
  for (unsigned char c : bytes.substr(0, 16))
    text += c >= ' ' && c < 127 ? char(c) : '.';
  return "'" + text + "'";
}

static std::string formatSeconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", seconds);
  return text;
}

//===----------------------------------------------------------------------===//
// Who waits for others
//===----------------------------------------------------------------------===//

namespace {
/// Takes in the processes from `first` to the last.
class Reception {
public:
  Reception(const Socket &listener, const Place &place, uint64_t token,
            int32_t first)
      : listener(listener), place(place), token(token), first(first),
        guests(place.size), names(place.size), ports(place.size) {}

  /// Until all are there. A failure is told to those that are; `check` says
  /// now and then whether there is one.
  Status receive(Deadline deadline, double timeout,
                 const std::function<Status()> &check = success);

  std::vector<Socket> &arrived() { return guests; }
  uint16_t portOf(int32_t process) const { return ports[process]; }

private:
  struct Visitor {
    Socket socket;
    Deadline deadline;
    char bytes[sizeof(Hello)] = {};
    size_t size = 0;
  };

  bool allAreThere() const;
  Status fail(const std::string &message);
  void refuse(const Visitor &visitor, const std::string &why);
  void sayThatItWaits(Deadline &next);
  bool listenTo(Visitor &visitor, Status &status);
  Status judge(Visitor &visitor);
  std::string describeMissing(double timeout) const;

  const Socket &listener;
  const Place &place;
  const uint64_t token;
  const int32_t first;
  Deadline nextSign = Clock::now();
  std::vector<Socket> guests;
  std::vector<std::string> names; ///< of the guests
  std::vector<uint16_t> ports;
  std::vector<Visitor> visitors;
  size_t numRefused = 0;
  std::string lastRefused;
};
} // namespace

bool Reception::allAreThere() const {
  return std::all_of(guests.begin() + first, guests.end(),
                     [](const Socket &guest) { return bool(guest); });
}

Status Reception::fail(const std::string &message) {
  for (const Socket &guest : guests)
    if (guest)
      (void)answer(guest, Answer::Refused, message);
  return Failure{message};
}

void Reception::refuse(const Visitor &visitor, const std::string &why) {
  ++numRefused;
  lastRefused = visitor.socket.peerAddress().str() + ", which " + why;
}

std::string Reception::describeMissing(double timeout) const {
  std::string names;
  int32_t number = 0;
  for (int32_t p = first; p < place.size; ++p) {
    if (guests[p])
      continue;
    if (++number <= 10)
      names += (names.empty() ? "" : ", ") + std::to_string(p);
    else if (number == 11)
      names += ", ...";
  }
  std::string text = (number == 1 ? "process " : "processes ") + names +
                     " of " + std::to_string(place.size) +
                     (number == 1 ? " has" : " have") + " not come to " +
                     listener.ownAddress().str() + " within " +
                     formatSeconds(timeout) +
                     "; look for what they say themselves, or give more time "
                     "with --rendezvous-timeout";
  if (numRefused > 0)
    text += "; refused: " + counted(int64_t(numRefused), "connection") +
            ", the last from " + lastRefused;
  return text;
}

/// To the guests of process 0, which wait for its answer.
void Reception::sayThatItWaits(Deadline &next) {
  if (place.number != 0)
    return;
  if (Clock::now() >= nextSign) {
    for (const Socket &guest : guests)
      if (guest)
        (void)answer(guest, Answer::Waits, "");
    nextSign = Clock::now() + kSignTime;
  }
  next = std::min(next, nextSign);
}

Status Reception::receive(Deadline deadline, double timeout,
                          const std::function<Status()> &check) {
  while (!allAreThere()) {
    if (Clock::now() >= deadline)
      return fail(describeMissing(timeout));
    if (Status status = check(); !status)
      return fail(status.message());
    std::vector<pollfd> entries = {{listener.descriptor(), POLLIN, 0}};
    Deadline next = deadline;
    sayThatItWaits(next);
    for (const Visitor &visitor : visitors) {
      entries.push_back({visitor.socket.descriptor(), POLLIN, 0});
      next = std::min(next, visitor.deadline);
    }
    // Guests may say more, which is not for us; but they may go.
    for (const Socket &guest : guests)
      entries.push_back({guest.descriptor(), POLLRDHUP, 0});
    poll(entries.data(), entries.size(), pollTime(next));

    const size_t numVisitors = visitors.size();
    for (size_t p = 0; p < guests.size(); ++p)
      if (entries[1 + numVisitors + p].revents)
        guests[p] = Socket();
    for (size_t v = numVisitors; v-- > 0;) {
      Status status = success();
      bool stays = Clock::now() < visitors[v].deadline;
      if (!stays)
        refuse(visitors[v], "did not say who it is");
      else if (entries[1 + v].revents)
        stays = listenTo(visitors[v], status);
      if (!status)
        return status;
      if (!stays)
        visitors.erase(visitors.begin() + v);
    }
    if (entries[0].revents)
      while (Socket socket = listener.accept()) {
        if (visitors.size() >= kMaxVisitors)
          visitors.erase(visitors.begin());
        visitors.push_back({std::move(socket), Clock::now() + kHelloTime});
      }
  }
  return success();
}

/// Reads what a visitor says; returns whether it has more to say.
bool Reception::listenTo(Visitor &visitor, Status &status) {
  const ssize_t size =
      recv(visitor.socket.descriptor(), visitor.bytes + visitor.size,
           sizeof(Hello) - visitor.size, 0);
  if (size < 0)
    return errno == EAGAIN || errno == EINTR;
  if (size == 0) {
    refuse(visitor, "left without a word");
    return false;
  }
  visitor.size += size;
  if (std::memcmp(visitor.bytes, kMagic, std::min<size_t>(visitor.size, 8))) {
    refuse(visitor, "sent " + shown({visitor.bytes, visitor.size}) +
                        " and is no penstock-run");
    return false;
  }
  // Another version may say less.
  uint32_t version = 0;
  std::memcpy(&version, visitor.bytes + offsetof(Hello, version),
              sizeof(version));
  if (visitor.size < (version == kVersion ? sizeof(Hello) : kAlikeBytes))
    return true;
  status = judge(visitor);
  return false;
}

/// Takes a visitor in, or refuses it. Fails where the job cannot work.
Status Reception::judge(Visitor &visitor) {
  Hello hello;
  std::memcpy(&hello, visitor.bytes, sizeof(hello));
  const std::string name = "process " + std::to_string(hello.number);
  if (hello.version != kVersion) {
    const std::string what =
        " version " + std::to_string(hello.version) + " of the protocol, and ";
    refuse(visitor,
           "speaks" + what + "not version " + std::to_string(kVersion));
    (void)answer(visitor.socket, Answer::Refused,
                 name + " speaks" + what + "process " +
                     std::to_string(place.number) + " version " +
                     std::to_string(kVersion) +
                     "; use the same build everywhere");
    return success();
  }
  if (hello.token != token) {
    refuse(visitor, "belongs to another run");
    (void)answer(visitor.socket, Answer::OtherRun, "");
    return success();
  }
  const auto failBoth = [&](const std::string &message) {
    (void)answer(visitor.socket, Answer::Refused, message);
    return fail(message);
  };
  if (hello.size != uint32_t(place.size))
    return failBoth(
        name + " has been told that the job has " + std::to_string(hello.size) +
        (hello.size == 1 ? " process" : " processes") + ", but process " +
        std::to_string(place.number) + " that it has " +
        std::to_string(place.size) + "; start all with the same --world-size");
  const std::string visitorName = "pid " + std::to_string(hello.pid) + " at " +
                                  visitor.socket.peerAddress().host;
  if (hello.number < uint32_t(first) || hello.number >= uint32_t(place.size) ||
      guests[hello.number])
    return failBoth(
        describeTwins(hello.number, place.size,
                      hello.number == uint32_t(place.number) ? ownName()
                      : hello.number < names.size() ? names[hello.number]
                                                    : "another one",
                      visitorName));
  names[hello.number] = visitorName;
  guests[hello.number] = std::move(visitor.socket);
  ports[hello.number] = hello.port;
  return success();
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

/// The first line of a rendezvous file; its address, a number that no other run
/// has, and who has written it follow, a line each.
static constexpr char kFileMark[] = "penstock-rendezvous 1";

namespace {
struct FileContents {
  Address address;
  std::string nonce, writer;
};

/// The file of process 0; it goes with this object.
class RendezvousFile {
public:
  explicit RendezvousFile(const Place &place) : place(place) {}
  RendezvousFile(const RendezvousFile &) = delete;
  ~RendezvousFile();
  /// Fails where another process 0 waits at the same path.
  Status write(const FileContents &contents);
  /// Fails when the others cannot find it any more.
  Status check();
  /// Removes it, unless it is another process's.
  void remove();

private:
  const Place &place;
  std::string nonce; ///< empty: there is no file
  Deadline seen;
};

/// The files of this process.
struct OwnFiles {
  std::mutex mutex; ///< of all
  std::set<RendezvousFile *> present;
  bool ending = false;
};
} // namespace

static OwnFiles &ownFiles() {
  static OwnFiles files;
  return files;
}

/// Fails with what is wrong with the file, in words that fit behind its name.
static Result<FileContents> readFile(const std::string &path) {
  std::ifstream in(path);
  if (!in)
    return Failure{"is not there"};
  std::string mark, address, nonce, writer;
  char line[512];
  for (std::string *text : {&mark, &address, &nonce, &writer})
    if (in.getline(line, sizeof(line)))
      *text = line;
  Result<Address> parsed = parseAddress(address);
  if (mark != kFileMark || !parsed || nonce.empty())
    return Failure{"is no rendezvous file of penstock-run"};
  return FileContents{*parsed, nonce, writer};
}

/// The hash of the run whose file this is.
static uint64_t tokenOf(const Place &place, const std::string &nonce) {
  return hashOf(place.runId + "\n" + nonce);
}

/// Tells the process 0 that has written this, if it is of the same run and
/// waits still, that there are two. Returns what it makes of that; empty: there
/// is none.
static std::string askRival(const Place &place, const FileContents &contents) {
  const Deadline end = Clock::now() + kRivalTime;
  Result<Socket> socket = connectTo(contents.address, end);
  if (!socket ||
      !socket->write(packHello(place, tokenOf(place, contents.nonce), 0), end))
    return {};
  Reply reply;
  std::string text;
  if (!socket->read({reinterpret_cast<char *>(&reply), sizeof(reply)}, end) ||
      std::memcmp(reply.magic, kMagic, 8) || reply.answer != Answer::Refused ||
      reply.length > kMaxText)
    return {};
  text.resize(reply.length);
  return socket->read(text, end) ? text : std::string();
}

Status RendezvousFile::write(const FileContents &contents) {
  const std::string &target = place.path;
  std::error_code error;
  if (std::filesystem::exists(target, error)) {
    const Result<FileContents> old = readFile(target);
    if (!old && std::filesystem::exists(target, error))
      return Failure{"'" + target +
                     "' exists and is no rendezvous file of penstock-run; name "
                     "another path"};
    if (const std::string twins = old ? askRival(place, *old) : "";
        !twins.empty())
      return Failure{twins};
  }
  std::lock_guard lock(ownFiles().mutex);
  const std::filesystem::path temporary = temporaryBeside(target);
  std::ofstream out(temporary);
  out << kFileMark << '\n'
      << contents.address.str() << '\n'
      << contents.nonce << '\n'
      << contents.writer << '\n';
  out.close();
  if (out && !ownFiles().ending)
    std::filesystem::rename(temporary, target, error);
  if (!out || error || ownFiles().ending) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    return Failure{"cannot write '" + target +
                   "'; name a path in a directory that exists, on a file "
                   "system that all processes share"};
  }
  nonce = contents.nonce;
  seen = Clock::now();
  ownFiles().present.insert(this);
  return success();
}

Status RendezvousFile::check() {
  std::string own;
  {
    std::lock_guard lock(ownFiles().mutex);
    own = nonce;
  }
  if (own.empty())
    return success();
  const Result<FileContents> contents = readFile(place.path);
  if (contents && contents->nonce == own)
    seen = Clock::now();
  else if (contents) {
    const std::string twins = askRival(place, *contents);
    return Failure{twins.empty() ? describeTwins(0, place.size, ownName(),
                                                 contents->writer.empty()
                                                     ? "another one"
                                                     : contents->writer)
                                 : twins};
  } else if (Clock::now() - seen > kRivalTime)
    return Failure{"'" + place.path +
                   "', by which the others find process 0 (" + ownName() +
                   "), " + contents.message() +
                   " any more; has another process 0 been there, or has "
                   "somebody removed it?"};
  return success();
}

void RendezvousFile::remove() {
  if (nonce.empty())
    return;
  // A later run may have taken the place.
  if (auto contents = readFile(place.path);
      contents && contents->nonce == nonce) {
    std::error_code ignored;
    std::filesystem::remove(place.path, ignored);
  }
  nonce.clear();
}

RendezvousFile::~RendezvousFile() {
  std::lock_guard lock(ownFiles().mutex);
  ownFiles().present.erase(this);
  remove();
}

void leaveMeetings() {
  std::lock_guard lock(ownFiles().mutex);
  ownFiles().ending = true;
  for (RendezvousFile *file : ownFiles().present)
    file->remove();
}

//===----------------------------------------------------------------------===//
// Process 0
//===----------------------------------------------------------------------===//

static Result<Connections> receiveAll(const Place &place,
                                      const std::string &host, double timeout,
                                      Deadline deadline) {
  const Address wanted = place.path.empty() ? place.address : Address{host, 0};
  Result<Socket> listener = listenAt(wanted);
  if (!listener)
    return Failure{
        "process 0 cannot listen at " + wanted.str() + " (" + place.where +
        "): " + listener.message() +
        "; give an address of the machine of process 0, and a port that is "
        "free"};
  uint64_t token = hashOf(place.runId);
  RendezvousFile file(place);
  if (!place.path.empty()) {
    std::random_device random;
    const std::string nonce =
        std::to_string((uint64_t(random()) << 32) | random());
    if (Status status = file.write({listener->ownAddress(), nonce, ownName()});
        !status)
      return status.failure();
    token = tokenOf(place, nonce);
  }
  Reception reception(*listener, place, token, 1);
  if (Status status =
          reception.receive(deadline, timeout, [&] { return file.check(); });
      !status)
    return status.failure();
  Connections result;
  result.sockets = std::move(reception.arrived());
  result.met = listener->ownAddress().str();
  std::string table;
  for (int32_t p = 1; p < place.size; ++p)
    table += Address{result.sockets[p].peerAddress().host, reception.portOf(p)}
                 .str()
                 .append("\n");
  for (int32_t p = 1; p < place.size; ++p)
    if (Status status = answer(result.sockets[p], Answer::Welcome, table);
        !status)
      return Failure{"process " + std::to_string(p) +
                     " left while the processes met: " + status.message()};
  return result;
}

//===----------------------------------------------------------------------===//
// The others
//===----------------------------------------------------------------------===//

namespace {
/// One process that goes to process 0.
class Visit {
public:
  Visit(const Place &place, double timeout, Deadline deadline)
      : place(place), timeout(timeout), deadline(deadline) {}

  Result<Connections> run();

private:
  /// One try. Returns none, with `trouble`, when another one may succeed.
  Result<bool> tryOnce();
  Result<bool> readReply();
  Status connectToOthers();

  const Place &place;
  const double timeout;
  const Deadline deadline;
  Address target;
  std::string nonce; ///< of the file
  uint64_t token = 0;
  std::string trouble; ///< of the last try
  Socket first, listener;
  std::string table;
  Connections connections;
};
} // namespace

Result<bool> Visit::tryOnce() {
  target = place.address;
  token = hashOf(place.runId);
  if (!place.path.empty()) {
    Result<FileContents> contents = readFile(place.path);
    if (!contents) {
      trouble = "'" + place.path + "' " + contents.message() +
                "; process 0 writes it, on a file system that all share";
      return false;
    }
    target = contents->address;
    nonce = contents->nonce;
    token = tokenOf(place, nonce);
  }
  const auto describe = [&](const std::string &what) {
    return "process 0 does not answer at " + target.str() + " (" + place.where +
           "): " + what;
  };
  Result<Socket> socket =
      connectTo(target, std::min(deadline, Clock::now() + 5s));
  if (!socket) {
    trouble = describe(socket.message());
    return false;
  }
  first = std::move(*socket);
  // Where process 0 reaches this process, the others do too.
  const std::string host = first.ownAddress().host;
  Result<Socket> own = listenAt({host, 0});
  if (!own)
    return Failure{"cannot listen at " + host + ": " + own.message()};
  listener = std::move(*own);
  if (Status status = first.write(
          packHello(place, token, listener.ownAddress().port), deadline);
      !status) {
    trouble = describe(status.message());
    return false;
  }
  return readReply();
}

Result<bool> Visit::readReply() {
  // An old file may lead to anybody.
  const auto fail = [&](const std::string &message) -> Result<bool> {
    trouble = message;
    if (!place.path.empty())
      return false;
    return Failure{message};
  };
  const std::string at = target.str() + " (" + place.where + ")";
  // Process 0 answers when all are there, and until then says that it waits.
  Reply reply;
  char *bytes = reinterpret_cast<char *>(&reply);
  Deadline last = deadline, lastSign = {};
  do {
    // Meanwhile the file may turn out to be an old one.
    while (!first.waitToRead(std::min(last, Clock::now() + kSignTime)) &&
           Clock::now() < last)
      if (auto contents = readFile(place.path);
          contents && contents->nonce != nonce)
        return fail("'" + place.path + "' was an old one");
    // Before all of it: what is no penstock-run may send less.
    Status status = first.read({bytes, 8}, last);
    if (status && std::memcmp(reply.magic, kMagic, 8))
      return fail("what listens at " + at + " says " + shown({bytes, 8}) +
                  " and is no process 0 of penstock-run; use another port");
    if (status)
      status = first.read({bytes + 8, sizeof(reply) - 8}, last);
    if (status && reply.version != kVersion)
      return fail("process 0 at " + at + " speaks version " +
                  std::to_string(reply.version) +
                  " of the protocol, this process version " +
                  std::to_string(kVersion) + "; use the same build everywhere");
    if (status && reply.length > kMaxText)
      status = Failure{"its answer is too long"};
    if (status) {
      table.resize(reply.length);
      status = first.read(table, last);
    }
    const auto now = Clock::now();
    if (!status && now >= last && lastSign != Deadline()) {
      const bool lives = now - lastSign < kSilentTime;
      return Failure{"process 0 of " + std::to_string(place.size) + " at " +
                     at +
                     (lives ? " still waits for others after "
                            : " gives no sign of life while the others wait "
                              "for it, after ") +
                     formatSeconds(timeout) +
                     (lives ? "; look for what they say themselves, or give "
                              "more time with --rendezvous-timeout"
                            : "; its process is frozen or lost")};
    }
    if (!status)
      return fail("what listens at " + at +
                  " does not answer as a process 0 of penstock-run does: " +
                  status.message() +
                  "; has process 0 ended, is it frozen, or is it another "
                  "program?");
    lastSign = now;
    last = std::min(deadline + kGrace, std::max(deadline, now + kSilentTime));
  } while (reply.answer == Answer::Waits);
  switch (reply.answer) {
  case Answer::Welcome:
    return true;
  case Answer::OtherRun:
    return fail("at " + at +
                " is process 0 of another run; give each run its own port, and "
                "all processes of one the same --run-id");
  default:
    return Failure{table};
  }
}

Status Visit::connectToOthers() {
  connections.met = target.str();
  connections.sockets.resize(place.size);
  connections.sockets[0] = std::move(first);
  const Deadline end = Clock::now() + kConnectTime;
  std::istringstream lines(table);
  std::string line;
  for (int32_t p = 1; p < place.number && std::getline(lines, line); ++p) {
    Result<Address> address = parseAddress(line);
    if (!address)
      return Failure{"process 0 gave no address of process " +
                     std::to_string(p)};
    Result<Socket> socket = connectTo(*address, end);
    Status status = socket ? socket->write(packHello(place, token, 0), end)
                           : Status(socket.failure());
    if (!status)
      return Failure{"cannot reach process " + std::to_string(p) + " at " +
                     line + ": " + status.message()};
    connections.sockets[p] = std::move(*socket);
  }
  Reception reception(listener, place, token, place.number + 1);
  if (Status status = reception.receive(
          end, std::chrono::duration<double>(kConnectTime).count());
      !status)
    return status;
  for (int32_t p = place.number + 1; p < place.size; ++p)
    connections.sockets[p] = std::move(reception.arrived()[p]);
  return success();
}

Result<Connections> Visit::run() {
  for (auto pause = 10ms;; pause = std::min(2 * pause, 200ms)) {
    const Result<bool> result = tryOnce();
    if (!result)
      return result.failure();
    if (*result)
      break;
    if (Clock::now() + pause >= deadline)
      return Failure{"process 0 of " + std::to_string(place.size) +
                     " was not found within " + formatSeconds(timeout) + "; " +
                     trouble};
    std::this_thread::sleep_for(pause);
  }
  if (Status status = connectToOthers(); !status)
    return status.failure();
  return std::move(connections);
}

Result<Connections> meetOthers(const Place &place, const std::string &address,
                               double timeout) {
  const Deadline deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(timeout));
  return place.number == 0 ? receiveAll(place, address, timeout, deadline)
                           : Visit(place, timeout, deadline).run();
}

} // namespace penstock::runtime
