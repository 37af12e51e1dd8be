"""Uniform shuffle of lines across machines with Apache Spark.

    spark-submit spark_shuffle.py --seed 42 --parts 64 'INPUT/*.jsonl' OUTPUT

Every line gets an independent random 128-bit label and the lines are sorted by it. Spark's range partitioner places the labels, so
memory of one executor holds one part alone. Equal (input, seed, cluster settings that decide the splits) give equal outputs.
"""

import argparse
import hashlib

from pyspark.sql import SparkSession


def label(seed, index):
    return hashlib.blake2b(index.to_bytes(16, "little"), digest_size=16, key=seed.to_bytes(8, "little")).digest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", type=int, default=64, help="output files")
    parser.add_argument("--codec", default="org.apache.hadoop.io.compress.GzipCodec", help="empty: no compression")
    parser.add_argument("input")
    parser.add_argument("output")
    arguments = parser.parse_args()
    seed = arguments.seed

    spark = SparkSession.builder.appName("shuffle").getOrCreate()
    lines = spark.sparkContext.textFile(arguments.input)
    # zipWithIndex, not a random number: a task that is run again after a failure must label its lines as before.
    shuffled = lines.zipWithIndex().map(lambda pair: (label(seed, pair[1]), pair[0])).sortByKey(numPartitions=arguments.parts).values()
    shuffled.saveAsTextFile(arguments.output, arguments.codec or None)
    spark.stop()


if __name__ == "__main__":
    main()
