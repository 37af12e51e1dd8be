// Runs the cases of nccl_cases.h, each rank in a process of its own, and compares what happens with a recorded file.
//
//   usage: nccl_contract_test --libcuda=PATH --libnccl=PATH --recorded=FILE [--print]
//
// `--print` prints what happened, as the file's content. Exit status 1: a case differs, or is not in the file.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/gpu/nccl_cases.h"

namespace {

using Options = std::map<std::string, std::string>;

constexpr int kRanks = 2;

// A name without a slash before it would be looked up.
std::string PathOf(const std::string& given) { return given.starts_with("tests/") ? "./" + given : given; }

struct Libraries {
  const cairn::GpuDriver* driver = nullptr;
  std::unique_ptr<const cairn::NcclLibrary> nccl;
};

bool Open(Options& options, Libraries& libraries) {
  std::string error;
  libraries.driver = cairn::GpuDriver::Open(PathOf(options["--libcuda"]), &error);
  if (libraries.driver != nullptr) libraries.nccl = cairn::NcclLibrary::Open(PathOf(options["--libnccl"]), &error);
  if (libraries.nccl == nullptr) std::cerr << "error: " << error << "\n";
  return libraries.nccl != nullptr;
}

// One rank of a case: rank 0 prints the unique id, the others read it.
int RunRank(Options& options) {
  Libraries libraries;
  if (!Open(options, libraries)) return 2;
  cairn::cuda::Context context = nullptr;
  if (libraries.driver->call().primary_context_retain(&context, 0) != cairn::cuda::kSuccess) return 2;
  libraries.driver->call().context_push(context);
  cairn::NcclRank rank = {*libraries.driver, *libraries.nccl, std::atoi(options["--rank"].c_str()), {}};
  if (rank.rank == 0) {
    libraries.nccl->call().get_unique_id(&rank.id);
    if (write(STDOUT_FILENO, &rank.id, sizeof(rank.id)) != sizeof(rank.id)) return 2;
  } else if (read(STDIN_FILENO, &rank.id, sizeof(rank.id)) != sizeof(rank.id)) {
    return 2;
  }
  for (const cairn::NcclCase& each : cairn::NcclCases()) {
    if (each.name != options["--case"]) continue;
    const std::string outcome = each.run(rank);
    (void)!write(STDOUT_FILENO, outcome.data(), outcome.size());
    if (each.dying_rank == rank.rank) _exit(0);  // as a process that was killed: the library hears nothing
    close(STDOUT_FILENO);
    // The other rank may still need this one's process, and the first rank's threads.
    char byte = 0;
    (void)!read(STDIN_FILENO, &byte, 1);
    _exit(0);
  }
  return 2;
}

struct Process {
  pid_t pid = 0;
  int in = -1;
  int out = -1;
};

Process Start(const std::vector<std::string>& arguments, const std::string& host) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    if (!host.empty()) setenv("NCCL_HOSTID", host.c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    std::vector<std::string> kept = arguments;
    std::vector<char*> argv;
    for (std::string& argument : kept) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  return {pid, in[1], out[0]};
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(got));
  return text;
}

std::string Run(const cairn::NcclCase& each, Options& options) {
  std::vector<Process> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(
        Start({"nccl_contract_test", "--libcuda=" + options["--libcuda"], "--libnccl=" + options["--libnccl"],
               "--case=" + each.name, "--rank=" + std::to_string(rank)},
              each.apart ? "rank-" + std::to_string(rank) : ""));
  }
  cairn::nccl::UniqueId id = {};
  if (read(ranks[0].out, &id, sizeof(id)) == sizeof(id)) {
    for (int rank = 1; rank < kRanks; ++rank) (void)!write(ranks[static_cast<size_t>(rank)].in, &id, sizeof(id));
  }
  std::string outcome;
  for (const Process& rank : ranks) {
    outcome += (outcome.empty() ? "" : " | ") + ReadAll(rank.out);
    close(rank.out);
  }
  for (const Process& rank : ranks) {
    close(rank.in);
    waitpid(rank.pid, nullptr, 0);
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    options[argument.substr(0, equals)] = equals == std::string::npos ? "yes" : argument.substr(equals + 1);
  }
  if (options.contains("--rank")) return RunRank(options);
  Libraries libraries;
  if (!Open(options, libraries)) return 2;
  std::ifstream file(options["--recorded"]);
  const nlohmann::json recorded = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  nlohmann::json happened = nlohmann::json::object();
  int differing = 0;
  for (const cairn::NcclCase& each : cairn::NcclCases()) {
    const std::string outcome = Run(each, options);
    happened[each.name] = {{"outcome", outcome}, {"seen_on", libraries.nccl->is_stand_in() ? "assumed" : "a GPU"}};
    const auto known = recorded.is_object() ? recorded.find(each.name) : recorded.end();
    const std::string expected = known == recorded.end() ? "(not recorded)" : known->value("outcome", "");
    if (outcome == expected) continue;
    ++differing;
    std::cerr << each.name << ": " << outcome << ", recorded: " << expected << "\n";
  }
  if (recorded.is_object() && recorded.size() != cairn::NcclCases().size()) {
    std::cerr << options["--recorded"] << " has " << recorded.size() << " cases, there are "
              << cairn::NcclCases().size() << "\n";
    ++differing;
  }
  if (options.contains("--print")) std::cout << happened.dump(2) << "\n";
  std::cerr << cairn::NcclCases().size() << " cases, " << differing << " differ\n";
  return differing == 0 ? 0 : 1;
}
