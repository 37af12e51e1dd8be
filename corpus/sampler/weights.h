// The arithmetic of Megatron's blends: which share each dataset has, and how many samples are built of it.
#ifndef CAIRN_CORPUS_SAMPLER_WEIGHTS_H_
#define CAIRN_CORPUS_SAMPLER_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace cairn::corpus {

// Returns numpy.sum of the values: it adds by halves (numpy's pairwise sum), and so rounds in another way than a loop.
double NumpySum(std::span<const double> values);

// Returns each weight divided by their sum, as megatron.core.datasets.utils.normalize. The sum must not be 0.
std::vector<double> Normalize(std::span<const double> weights);

// Returns how many samples one dataset gives to `samples` samples of a blend, rounded up, and with the surplus that
// Megatron builds beyond them, for example 0.005 (_get_size_per_split_per_dataset).
uint64_t SamplesOfShare(uint64_t samples, double normalized_weight, double surplus);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_WEIGHTS_H_
