"""Prints what TensorBoard itself finds in a directory of event files, as JSON:
{"scalars": {tag: [[step, value], ...]}, "texts": {tag: [[step, text], ...]}}.

    read_event_files.py DIRECTORY
"""
import json
import sys

from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.util import tensor_util

# 0: all of a tag's events, no sample of them.
events = plugin_event_accumulator.EventAccumulator(
    sys.argv[1], size_guidance={plugin_event_accumulator.TENSORS: 0})
events.Reload()
found = {"scalars": {}, "texts": {}}
for tag in events.Tags()[plugin_event_accumulator.TENSORS]:
    text = events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    values = [[event.step, tensor_util.make_ndarray(event.tensor_proto)]
              for event in events.Tensors(tag)]
    found["texts" if text else "scalars"][tag] = [
        [step, value.item().decode() if text else value.item()] for step, value in values]
json.dump(found, sys.stdout)
