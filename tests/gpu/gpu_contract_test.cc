// Runs the cases of contract_cases.h and compares what happens with recorded.json.
//
//   usage: gpu_contract_test --libcuda=PATH --recorded=FILE [--print]
//
// `--print` prints what happened, as the file's content. Exit status 1: a case differs, or is not in the file.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/gpu/contract_cases.h"
#include "tests/gpu/sharing_cases.h"

namespace {

using Options = std::map<std::string, std::string>;

// A case that takes longer has hung.
constexpr int kLimitMilliseconds = 20'000;

std::string Run(const cairn::GpuDriver& driver, const cairn::ContractCase& each) {
  cairn::cuda::Context context = nullptr;
  if (driver.call().primary_context_retain(&context, 0) != cairn::cuda::kSuccess) return "device 0 cannot be used";
  driver.call().context_push(context);
  std::string outcome = each.run(driver);
  driver.call().context_pop(&context);
  driver.call().primary_context_release(0);
  return outcome;
}

const cairn::GpuDriver* Open(Options& options) {
  std::string path = options["--libcuda"];
  if (path.starts_with("tests/")) path = "./" + path;  // a name without a slash before it would be looked up
  std::string error;
  const cairn::GpuDriver* driver = cairn::GpuDriver::Open(path, &error);
  if (driver == nullptr) std::cerr << "error: " << error << "\n";
  return driver;
}

struct Outcome {
  std::string text;
  bool on_stand_in = false;
};

// Returns what was written until the other end was closed, or `late` was set.
std::string ReadAll(int fd, bool& late) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  std::string text;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd polled = {fd, POLLIN, 0};
    late = left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) == 0;
    if (late) return text;
    char buffer[4096];
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

// Runs a case in a process of its own, because a driver that has met an error may fail in everything that follows.
Outcome RunAlone(const cairn::ContractCase& each, Options& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    const cairn::GpuDriver* driver = Open(options);
    if (driver == nullptr) _exit(2);
    const std::string text = (driver->is_stand_in() ? "S" : "G") + Run(*driver, each);
    (void)!write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  bool late = false;
  const std::string text = ReadAll(ends[0], late);
  close(ends[0]);
  if (late) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (late) return {"hangs"};
  if (text.empty()) {
    return {WIFSIGNALED(status) ? "ended by signal " + std::to_string(WTERMSIG(status))
                                : "ended with status " + std::to_string(WEXITSTATUS(status))};
  }
  return {text.substr(1), text.starts_with("S")};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    options[argument.substr(0, equals)] = equals == std::string::npos ? "yes" : argument.substr(equals + 1);
  }
  if (options.contains("--child")) {
    const cairn::GpuDriver* driver = Open(options);
    if (driver == nullptr) return 2;
    const auto run = [&](const cairn::GpuDriver& d) {
      cairn::RunChild(d, options["--child"]);
      return std::string();
    };
    return Run(*driver, {"", run}).empty() ? 0 : 1;
  }
  std::ifstream file(options["--recorded"]);
  const nlohmann::json recorded = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  nlohmann::json happened = nlohmann::json::object();
  int differing = 0;
  for (const cairn::ContractCase& each : cairn::ContractCases()) {
    const Outcome outcome = RunAlone(each, options);
    happened[each.name] = {{"outcome", outcome.text}, {"seen_on", outcome.on_stand_in ? "assumed" : "a GPU"}};
    const auto known = recorded.is_object() ? recorded.find(each.name) : recorded.end();
    const std::string expected = known == recorded.end() ? "(not recorded)" : known->value("outcome", "");
    if (outcome.text == expected) continue;
    ++differing;
    std::cerr << each.name << ": " << outcome.text << ", recorded: " << expected << "\n";
  }
  if (recorded.is_object() && recorded.size() != cairn::ContractCases().size()) {
    std::cerr << "recorded.json has " << recorded.size() << " cases, there are " << cairn::ContractCases().size()
              << "\n";
    ++differing;
  }
  if (options.contains("--print")) std::cout << happened.dump(2) << "\n";
  std::cerr << cairn::ContractCases().size() << " cases, " << differing << " differ\n";
  return differing == 0 ? 0 : 1;
}
