#include "cli/corpus_command.h"

namespace cairn::cli {

void AddCorpusCommand(CLI::App& app, CommandContext& context) {
  CLI::App* corpus = app.add_subcommand("corpus", "Training-data tools: shuffle, tokenize, .bin/.idx");
  corpus->require_subcommand(1);
  (void)context;
}

}  // namespace cairn::cli
