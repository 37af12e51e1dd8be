// Runs the cases of contract_cases.h and compares what happens with recorded.json.
//
//   usage: gpu_contract_test --libcuda=PATH --recorded=FILE [--print]
//
// `--print` prints what happened, as the file's content. Exit status 1: a case differs, or is not in the file.
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/gpu/contract_cases.h"
#include "tests/gpu/sharing_cases.h"

namespace {

std::string Run(const cairn::GpuDriver& driver, const cairn::ContractCase& each) {
  cairn::cuda::Context context = nullptr;
  if (driver.call().primary_context_retain(&context, 0) != cairn::cuda::kSuccess) return "device 0 cannot be used";
  driver.call().context_push(context);
  std::string outcome = each.run(driver);
  driver.call().context_pop(&context);
  driver.call().primary_context_release(0);
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    options[argument.substr(0, equals)] = equals == std::string::npos ? "yes" : argument.substr(equals + 1);
  }
  std::string error;
  std::string path = options["--libcuda"];
  if (path.starts_with("tests/")) path = "./" + path;  // a name without a slash before it would be looked up
  const cairn::GpuDriver* driver = cairn::GpuDriver::Open(path, &error);
  if (driver == nullptr) {
    std::cerr << "error: " << error << "\n";
    return 2;
  }
  if (options.contains("--child")) {
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
    const std::string outcome = Run(*driver, each);
    happened[each.name] = {{"outcome", outcome}, {"seen_on", driver->is_stand_in() ? "assumed" : "a GPU"}};
    const auto known = recorded.is_object() ? recorded.find(each.name) : recorded.end();
    const std::string expected = known == recorded.end() ? "(not recorded)" : known->value("outcome", "");
    if (outcome == expected) continue;
    ++differing;
    std::cerr << each.name << ": " << outcome << ", recorded: " << expected << "\n";
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
