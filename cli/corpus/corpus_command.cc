#include "cli/corpus/corpus_command.h"

#include "cli/corpus/corpus_bpe_command.h"
#include "cli/corpus/corpus_inspect_command.h"
#include "cli/corpus/corpus_mds_command.h"
#include "cli/corpus/corpus_merge_command.h"
#include "cli/corpus/corpus_pack_command.h"
#include "cli/corpus/corpus_prepare_cache_command.h"
#include "cli/corpus/corpus_preprocess_command.h"
#include "cli/corpus/corpus_shuffle_command.h"
#include "cli/corpus/placed_objects.h"
#include "corpus/io/object_stores.h"

namespace cairn::cli {

void AddCorpusCommand(Command app, CommandContext& context) {
  Command corpus = app.AddCommand("corpus",
                                  "Prepares training data: shuffles, trains tokenizers, encodes, writes .bin and .idx "
                                  "files, and builds indices of samples");
  corpus.RequireCommand();
  static PlacedObjects& stores = *new PlacedObjects();  // threads may still read when the process ends
  corpus::UseObjectStores(&stores);
  AddCorpusBpeCommand(corpus, context);
  AddCorpusPreprocessCommand(corpus, context);
  AddCorpusPackCommand(corpus, context);
  AddCorpusShuffleCommand(corpus, context);
  AddCorpusMergeCommand(corpus, context);
  AddCorpusMdsCommand(corpus, context);
  AddCorpusPrepareCacheCommand(corpus, context);
  AddCorpusInspectCommands(corpus, context);
}

}  // namespace cairn::cli
