"""Keys and values: formats that are decoded to Arrow and encoded from it, schema registries, and what is malformed.

A JSON decoder turns a column of values into a column of structs with the wanted fields::

    decoder = JsonDecoder(pa.schema({"origin": pa.string(), "delay": pa.float64()}))
    structs, malformed = decoder.decode(batch.column("value"))

An Avro decoder does the same for datums, by a program for each writer schema (avro/avro_values.py), and a Protobuf
decoder for messages, by the program of their type (protobuf/protobuf_values.py). Encoders write a column as datums
(avro/avro_encoding.py) or messages (protobuf/encoder_program.py).
"""
