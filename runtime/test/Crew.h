//===- Crew.h - Processes that a test starts and ends -----------*- C++ -*-===//
//
// Starts programs, reads what they print, sends them signals, and sees when
// they end. None of them outlives the crew, nor the process that it belongs to.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_CREW_H
#define PENSTOCK_RUNTIME_TEST_CREW_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace penstock::runtime::test {

class Crew {
public:
  using Clock = std::chrono::steady_clock;
  struct Member {
    pid_t pid = 0;
    int fd = -1;             ///< of its output
    std::string output;      ///< of both streams, so far
    Clock::time_point spoke; ///< when the last of it came
    int code = -1;           ///< exit code, or 128 + signal; -1: it runs
  };

  Crew() = default;
  Crew(Crew &&other) noexcept : members(std::exchange(other.members, {})) {}
  Crew &operator=(Crew &&other) noexcept {
    std::swap(members, other.members);
    return *this;
  }
  ~Crew() {
    for (size_t m = 0; m < members.size(); ++m)
      signal(m, SIGKILL);
    waitForAll(60);
  }

  /// Starts a program with these variables on top of those of this process,
  /// less those of launchers.
  void start(const std::vector<std::string> &command,
             const std::map<std::string, std::string> &environment = {}) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      return;
    std::vector<char *> arguments;
    for (const std::string &argument : command)
      arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent)
        _exit(127);
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      for (const char *name :
           {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID"})
        unsetenv(name);
      for (const auto &[name, value] : environment)
        setenv(name.c_str(), value.c_str(), 1);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(ends[1]);
    members.push_back({pid, ends[0], "", Clock::now(), -1});
  }

  Member &operator[](size_t member) { return members[member]; }
  size_t size() const { return members.size(); }

  void signal(size_t member, int number) {
    if (members[member].code < 0)
      kill(members[member].pid, number);
  }

  /// Reads and waits until `done`; false: not within so many seconds.
  bool waitUntil(const std::function<bool()> &done, double seconds) {
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(seconds));
    while (!done()) {
      if (Clock::now() >= end)
        return false;
      std::vector<pollfd> entries;
      for (const Member &member : members)
        entries.push_back({member.fd, POLLIN, 0});
      poll(entries.data(), entries.size(), 2);
      for (size_t m = 0; m < members.size(); ++m)
        look(members[m], entries[m].revents != 0);
    }
    return true;
  }
  bool waitForAll(double seconds) {
    return waitUntil(
        [&] {
          return std::all_of(
              members.begin(), members.end(),
              [](const Member &m) { return m.code >= 0 && m.fd < 0; });
        },
        seconds);
  }

private:
  static void look(Member &member, bool speaks) {
    char buffer[4096];
    if (speaks) {
      const ssize_t size = read(member.fd, buffer, sizeof(buffer));
      if (size > 0) {
        member.output.append(buffer, size);
        member.spoke = Clock::now();
      } else {
        close(member.fd);
        member.fd = -1;
      }
    }
    int status = 0;
    if (member.code < 0 && waitpid(member.pid, &status, WNOHANG) > 0)
      member.code =
          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::vector<Member> members;
};

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_CREW_H
